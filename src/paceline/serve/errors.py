"""Errors in OpenAI's shape: {"error": {"message", "type", "param", "code"}}."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields as dataclass_fields
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from paceline.core.params import SamplingParams
from paceline.errors import PacelineError
from paceline.serve.watch import Busy, Stopping

_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error"} | {
    429: "rate_limit_error"
}
_NAMES = {"k": "num_speculative_tokens"}  # where a field has another name here than in the library
_FIELDS = {field.name for field in dataclass_fields(SamplingParams)}
_LONGEST = 500  # of a message: some repeat what was sent
log = logging.getLogger("paceline.serve")


class ApiError(HTTPException):
    """A request that is refused with `status`. `param`: the field that is at fault; `code`: a word
    for programs."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, message, headers)
        self.param, self.code = param, code

    @property
    def body(self) -> dict[str, Any]:
        """As JSON has it."""
        return error_body(self.status_code, self.detail, self.param, self.code)


def error_body(
    status: int, message: str, param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    """The one shape of all errors; the type follows from the status."""
    kind = _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    if len(message) > _LONGEST:
        message = message[:_LONGEST] + "…"
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


class Json(Response):
    """JSON as the standard library writes it: plain ASCII, so that no text can break it."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


def refuse_all(app: FastAPI) -> None:
    """Have every error of `app` told in this shape."""
    for kind, handler in (
        (HTTPException, _http),
        (RequestValidationError, _invalid),
        (PacelineError, _refused),
        (Busy, _busy),
        (Stopping, _stopping),
        (Exception, _fault),
    ):
        app.add_exception_handler(kind, handler)  # type: ignore[arg-type]


def fields_error(errors: Sequence[Mapping[str, Any]], body: Any) -> ApiError:
    """What pydantic found wrong with `body`, as one line that names the fields."""
    for kind, says, code in (
        ("extra_forbidden", "unknown field", "unknown_field"),
        ("none_required", "not supported by this server", "unsupported_field"),
    ):
        names = [_where(e, body) for e in errors if e["type"] == kind]
        if names:
            return ApiError(400, f"{says}: {', '.join(names)}", param=names[0], code=code)
    deepest = max(len(_path(e, body)) for e in errors)
    first = next(e for e in errors if len(_path(e, body)) == deepest)
    name = _where(first, body)
    key = str(first.get("ctx", {}).get("discriminator", "")).strip("'")
    if first["type"] == "union_tag_not_found":
        name = f"{name}.{key}"
    if first["type"] in ("missing", "union_tag_not_found"):
        return ApiError(400, f"missing: {name or 'the body'}", param=name or None, code="missing")
    if first["type"] == "union_tag_invalid":
        known, name = first["ctx"]["expected_tags"], f"{name}.{key}"
        return ApiError(400, f"{name}: must be one of {known}", param=name)
    says = {_message(e): None for e in errors if _where(e, body) == name}
    return ApiError(400, f"{name or 'the body'}: {' or '.join(says)}", param=name or None)


async def _http(_: Request, error: HTTPException) -> Response:
    known = isinstance(error, ApiError)
    body = error.body if known else error_body(error.status_code, str(error.detail))
    return Json(body, error.status_code, error.headers)


async def _invalid(request: Request, error: RequestValidationError) -> Response:
    if isinstance(error.body, bytes):  # it was not read as JSON
        return await _http(request, ApiError(415, "the body must be sent as application/json"))
    found = [{**e, "loc": e["loc"][1:]} for e in error.errors()]
    return await _http(request, fields_error(found, error.body))


async def _refused(request: Request, error: PacelineError) -> Response:
    word = str(error).split(" ", 1)[0]
    known = word in _FIELDS
    return await _http(
        request, ApiError(400, str(error), param=_NAMES.get(word, word) if known else None)
    )


async def _busy(request: Request, error: Busy) -> Response:
    wait = {"Retry-After": str(max(1, math.ceil(error.retry_after)))}
    return await _http(request, ApiError(429, str(error), code="queue_full", headers=wait))


async def _stopping(request: Request, _: Stopping) -> Response:
    return await _http(request, not_ready())


async def _fault(request: Request, error: Exception) -> Response:
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return await _http(request, ApiError(500, "something went wrong in the server"))


def not_ready() -> ApiError:
    """While no token can be made: before the engine has started and once it stops."""
    wait = {"Retry-After": "5"}
    return ApiError(503, "the server is starting or stopping", code="not_ready", headers=wait)


def _path(error: Mapping[str, Any], body: Any) -> list[str | int]:
    """Where in `body` an error is; its location also names the alternatives that were tried."""
    path: list[str | int] = []
    for key in error["loc"]:
        try:
            body = body[key]
        except (KeyError, IndexError, TypeError):  # not of the body
            continue
        path.append(key)
    return [*path, error["loc"][-1]] if error["type"] == "missing" and error["loc"] else path


def _where(error: Mapping[str, Any], body: Any) -> str:
    text = ""
    for key in _path(error, body):
        text += f"[{key}]" if isinstance(key, int) else f".{key}" if text else key
    return text


def _message(error: Mapping[str, Any]) -> str:
    text = str(error["msg"]).removeprefix("Value error, ")
    return text[:1].lower() + text[1:]
