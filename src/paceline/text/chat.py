"""Conversations to ids, by the chat template that comes with the model.

A message that holds the text of a control token (a user who types `<|im_end|>`) has it read as that
token. Templates give one string in which nobody can tell the template's own markers from quoted
ones, every other engine reads it so, and the same conversation must give the same ids here; who
passes on text from strangers should take such markers out of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from paceline.errors import PacelineError

if TYPE_CHECKING:
    import jinja2

    from paceline.text.tokenizer import Tokenizer

Message = Mapping[str, Any]  # {"role": "system" | "user" | "assistant" | ..., "content": ...}


def render(
    template: str,
    messages: Sequence[Message],
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    add_generation_prompt: bool = True,
    bos_token: str = "",
    eos_token: str = "",
) -> str:
    """The text that `template` makes of `messages`, run in jinja2's sandbox.

    `add_generation_prompt` opens the assistant's turn at the end. Raises PacelineError, in one
    line: no messages, a message without a role, a template that cannot be read or that refuses
    these messages.
    """
    if not messages:
        raise PacelineError("a chat needs at least one message")
    for message in messages:
        if not isinstance(message, Mapping) or "role" not in message:
            raise PacelineError(
                f"a message must be {{'role': ..., 'content': ...}}, not {message!r}"
            )
    try:
        return _compiled(template).render(
            messages=messages,
            tools=tools,
            add_generation_prompt=add_generation_prompt,
            bos_token=bos_token,
            eos_token=eos_token,
        )
    except Exception as error:  # a template is a program: it can fail in any way
        reason = " ".join(str(error).split()) or type(error).__name__
        raise PacelineError(f"the model's chat template failed: {reason}") from None


def chat_ids(
    tokenizer: Tokenizer,
    messages: Sequence[Message],
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    add_generation_prompt: bool = True,
) -> list[int]:
    """The ids to feed for a conversation, with exactly one BOS where the model wants one, whether
    or not its template writes it. Raises PacelineError as `render` does, and for a model without a
    template."""
    if tokenizer.chat_template is None:
        raise PacelineError(
            "this model has no chat template (it is a base model, which continues a text); "
            "use generate instead of chat"
        )
    eos = tokenizer.eos_ids
    text = render(
        tokenizer.chat_template,
        messages,
        tools=tools,
        add_generation_prompt=add_generation_prompt,
        bos_token="" if tokenizer.bos_id is None else tokenizer.token_text(tokenizer.bos_id),
        eos_token=tokenizer.token_text(eos[0]) if eos else "",
    )
    return tokenizer.prompt(text)


def prompt_ids(tokenizer: Tokenizer, text: str, chat: bool | None = None) -> list[int]:
    """The ids to feed for one prompt: as a user's message in the model's chat template (`chat`
    True), as plain text to be continued (False), or whichever the model is made for (None: as a
    message if it has a template). Raises PacelineError as `chat_ids` and `Tokenizer.prompt` do."""
    if chat is None:
        chat = tokenizer.chat_template is not None
    if chat:
        return chat_ids(tokenizer, [{"role": "user", "content": text}])
    return tokenizer.prompt(text)


@lru_cache(maxsize=8)
def _compiled(template: str) -> jinja2.Template:
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    # The settings, filters and functions that templates are written against.
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = _now
    return environment.from_string(template)


def _to_json(value: Any, indent: int | None = None, **_html: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> None:
    raise ValueError(message)


def _now(form: str) -> str:
    from datetime import datetime

    return datetime.now().strftime(form)
