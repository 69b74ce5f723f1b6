"""Chat templates: what is rendered, what is refused, and exactly one BOS."""

from __future__ import annotations

import json
from datetime import datetime

import pytest

from fake_tokenizer import ByteTokenizer
from paceline.errors import PacelineError
from paceline.text.chat import chat_ids, prompt_ids, render

USER = [{"role": "user", "content": "Hé <b>"}]
BOS = ByteTokenizer.BOS

# Lines of blocks alone leave nothing behind, neither their indentation nor their line end.
TURNS = """\
{% for message in messages %}
    {% if message.role == "ghost" %}
        {% continue %}
    {% endif %}
[{{ message["role"] }}]{{ message.content + eos_token }}
{% endfor %}
{% if add_generation_prompt %}
[assistant]
{%- endif %}
"""


def test_a_conversation_is_rendered_as_the_template_says():
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "ghost", "content": "skipped"},
        *USER,
    ]
    expected = "[system]Be brief.</s>\n[user]Hé <b></s>\n"
    assert render(TURNS, messages, eos_token="</s>") == expected + "[assistant]"
    assert render(TURNS, messages, eos_token="</s>", add_generation_prompt=False) == expected


def test_tools_reach_the_template_as_json_that_keeps_its_letters():
    tools = [{"name": "größe", "args": {"b": 1, "a": ["<x>"]}}]
    template = "{% if tools %}{{ tools[0] | tojson }}|{{ tools | tojson(indent=2) }}{% endif %}"
    one, several = render(template, USER, tools=tools).split("|")
    assert one == '{"name": "größe", "args": {"b": 1, "a": ["<x>"]}}'
    assert several == json.dumps(tools, ensure_ascii=False, indent=2)
    assert render(template, USER) == ""


def test_templates_may_ask_for_the_date():
    before = datetime.now().strftime("%Y")
    year = render("{{ strftime_now('%Y') }}", USER)
    assert before <= year <= datetime.now().strftime("%Y")


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{ raise_exception('roles must\n alternate') }}", "failed: roles must alternate$"),
        ("{% for m in messages %}", "failed: .*endfor"),
        ("{{ messages[0]['content'] + none }}", "failed: .*NoneType"),
        ("{{ missing.field }}", "failed: 'missing' is undefined"),
        ("{{ messages.append(1) }}", "failed: .*unsafe"),
        ("{{ messages.__class__.__mro__ }}", "failed: .*unsafe"),
    ],
)
def test_a_failing_template_is_one_line(template, reason):
    with pytest.raises(PacelineError, match=reason) as error:
        render(template, USER)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("messages", [[], [{"content": "x"}], ["Hello"]])
def test_messages_that_are_none_are_refused(messages):
    with pytest.raises(PacelineError, match="message"):
        render(TURNS, messages)


@pytest.mark.parametrize(
    "template", ["{{ messages[0].content }}", "{{ bos_token }}<bos>{{ messages[0].content }}"]
)
def test_exactly_one_bos_whoever_writes_it(template):
    tokenizer = ByteTokenizer(chat_template=template)
    assert chat_ids(tokenizer, USER) == [BOS, *"Hé <b>".encode()]


def test_a_model_without_bos_keeps_what_its_template_writes():
    tokenizer = ByteTokenizer(
        add_bos=False, chat_template="{{ bos_token }}{{ messages[0].content }}"
    )
    assert chat_ids(tokenizer, USER) == [BOS, *"Hé <b>".encode()]


def test_a_marker_inside_a_message_is_read_as_the_marker():
    tokenizer = ByteTokenizer(chat_template=TURNS)
    ids = chat_ids(tokenizer, [{"role": "user", "content": "a<eos>b"}], add_generation_prompt=False)
    assert ids == [BOS, *b"[user]a", ByteTokenizer.EOS, *b"b", ByteTokenizer.EOS, *b"\n"]


def test_a_base_model_says_to_use_generate():
    with pytest.raises(PacelineError, match=r"no chat template .* use generate instead of chat"):
        chat_ids(ByteTokenizer(), USER)


def test_a_prompt_is_a_message_where_there_is_a_template():
    chat = ByteTokenizer(chat_template="<{{ messages[0].role }}>{{ messages[0].content }}")
    assert prompt_ids(chat, "hi") == prompt_ids(chat, "hi", chat=True) == [BOS, *b"<user>hi"]
    assert prompt_ids(chat, "hi", chat=False) == prompt_ids(ByteTokenizer(), "hi") == [BOS, *b"hi"]
    with pytest.raises(PacelineError, match="no chat template"):
        prompt_ids(ByteTokenizer(), "hi", chat=True)
