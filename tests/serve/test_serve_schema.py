"""The OpenAPI document is true: requests made from it, right ones and wrong ones, get what it says
and never break the server."""

from __future__ import annotations

import pytest
import schemathesis
from fake_engine import FakeEngine, says
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from paceline.serve.app import make_app

EXAMPLES = 20
# A schema cannot say it all: an empty prompt, a model that is not there, a broken grammar.
EXCLUDED = [positive_data_acceptance]
OPERATIONS = [
    ("POST", "/v1/completions"),
    ("POST", "/v1/chat/completions"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/{name}"),
    ("GET", "/health"),
    ("GET", "/status"),
]


@pytest.fixture(scope="module")
def document(byte_tokenizer):
    engine = FakeEngine(byte_tokenizer, says("ok"), slots=8, queue=64)
    engine.start()
    yield schemathesis.openapi.from_asgi("/openapi.json", make_app(engine))
    engine.close()


def _likely(value):
    """A value nearer to one that is accepted: there are models that are not there, and what 5.0 is
    to a schema, an integer, it is not here."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_likely(entry) for entry in value]
    if isinstance(value, dict):
        named = {"model": "fake", "draft": "suffix", "verify": "block"}
        return {
            key: named[key] if key in named and isinstance(entry, str) else _likely(entry)
            for key, entry in value.items()
        }
    return value


def test_every_operation_is_documented(document):
    assert {(op.ok().method.upper(), op.ok().path) for op in document.get_all_operations()} == set(
        OPERATIONS
    )


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_what_it_says_is_so(document, method, path, mode):
    operation = document[path][method]
    if mode is GenerationMode.NEGATIVE and method == "GET":
        pytest.skip("there is nothing to get wrong")

    @seed(1)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode), known=st.booleans())
    def check(case, known):
        if known:
            case.body = _likely(case.body)
        case.call_and_validate(excluded_checks=EXCLUDED)

    check()
