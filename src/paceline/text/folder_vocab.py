"""The vocabulary in a Hugging Face folder: `tokenizer.json`, and what the files beside it add."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.errors import PacelineError
from paceline.text.vocabulary import (
    Kind,
    Vocabulary,
    byte_level_bytes,
    end_ids,
    is_byte_token,
    sentencepiece_bytes,
)

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def folder_vocabulary(folder: Path) -> Vocabulary:
    """The vocabulary of the model in `folder`.

    The chat template is that of `chat_template.jinja`, else of `tokenizer_config.json` (of a list,
    the one called "default", else its first). End tokens are `eos_token` and all `eos_token_id`s
    of `generation_config.json` (of `config.json` if that names none). Raises PacelineError: no
    tokenizer.json, a file that cannot be read, or a tokenizer whose tokens spell no bytes.
    """
    tokenizer = _load(folder)
    config = {
        **_json(folder / "special_tokens_map.json"),
        **_json(folder / "tokenizer_config.json"),
    }
    generation, model = _json(folder / "generation_config.json"), _json(folder / "config.json")

    ids = tokenizer.get_vocab(with_added_tokens=True)
    tokens = [""] * (max(ids.values(), default=-1) + 1)
    kinds = [Kind.UNUSED] * len(tokens)
    for token, i in ids.items():
        tokens[i], kinds[i] = token, Kind.NORMAL
    spell = _spelling(tokenizer, folder)
    if spell is sentencepiece_bytes:
        for i in filter(lambda i: is_byte_token(tokens[i]), range(min(len(tokens), 1024))):
            kinds[i] = Kind.BYTE
    for i, added in tokenizer.get_added_tokens_decoder().items():
        kinds[i] = Kind.CONTROL if added.special else Kind.USER
        if spell is sentencepiece_bytes:  # added text (Gemma's runs of spaces) is meant literally
            tokens[i] = added.content.replace("▁", " ")

    bos = _id(ids, config.get("bos_token"))
    if "bos_token" not in config:
        bos = next(iter(_ids(generation) or _ids(model, "bos_token_id")), None)
    eos = _id(ids, config.get("eos_token"))
    given = [] if eos is None else [eos]
    given += _ids(generation, "eos_token_id") or _ids(model, "eos_token_id")
    add_bos = config.get("add_bos_token")
    if add_bos is None:
        add_bos = bos is not None and tokenizer.encode("a").ids[:1] == [bos]
    return Vocabulary(
        tokens=tokens,
        kinds=kinds,
        spell=spell,
        encode=_encoder(tokenizer),
        bos_id=bos,
        eos_ids=end_ids(tokens, kinds, given),
        add_bos=bool(add_bos),
        chat_template=_template(folder, config),
    )


def _load(folder: Path) -> Tokenizer:
    from tokenizers import Tokenizer

    path = folder / "tokenizer.json"
    if not path.is_file():
        raise PacelineError(
            f"{folder} has no tokenizer.json; write one with "
            "transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(folder)"
        )
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        reason = " ".join(str(error).split())
        raise PacelineError(f"{path} cannot be read as a tokenizer: {reason}") from None
    tokenizer.no_truncation()  # a file may carry the settings of its training
    tokenizer.no_padding()
    return tokenizer


def _encoder(tokenizer: Tokenizer) -> Callable[[str, bool], list[int]]:
    lock = threading.Lock()

    def encode(text: str, special: bool) -> list[int]:
        with lock:  # the library keeps this as a setting, not as an argument
            tokenizer.encode_special_tokens = not special
            return tokenizer.encode(text, add_special_tokens=False).ids

    return encode


def _spelling(tokenizer: Tokenizer, folder: Path) -> Callable[[str], bytes]:
    decoder = tokenizer.decoder
    state = json.loads(decoder.__getstate__()) if decoder is not None else {}
    steps = state.get("decoders", [state])
    kinds = {step.get("type") for step in steps}
    if "ByteLevel" in kinds:
        return byte_level_bytes
    if "Metaspace" in kinds or any(
        step.get("type") == "Replace" and step.get("content") == " " for step in steps
    ):
        return sentencepiece_bytes
    raise PacelineError(
        f"{folder / 'tokenizer.json'} has a decoder of the kind {'/'.join(map(str, kinds))}; "
        "only byte-level and SentencePiece tokenizers can be used"
    )


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise PacelineError(f"{path} is not valid JSON: {error}") from None
    return value if isinstance(value, dict) else {}


def _id(ids: dict[str, int], token: Any) -> int | None:
    """The id of a token given as a string or as {"content": string}."""
    return ids.get(token["content"] if isinstance(token, dict) else token)


def _ids(config: dict[str, Any], key: str = "bos_token_id") -> list[int]:
    """A setting that is one id, several or null."""
    value = config.get(key)
    return [] if value is None else [value] if isinstance(value, int) else list(value)


def _template(folder: Path, config: dict[str, Any]) -> str | None:
    path = folder / "chat_template.jinja"
    if path.is_file():
        return path.read_text(encoding="utf-8")
    template = config.get("chat_template")
    if isinstance(template, list):
        named = {entry["name"]: entry["template"] for entry in template}
        return named.get("default", next(iter(named.values()), None))
    return template
