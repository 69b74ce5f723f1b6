"""What every request passes first: host, key, size; and what every answer carries."""

from __future__ import annotations

import asyncio
import contextlib
import hmac

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from paceline.serve.errors import ApiError, Json
from paceline.serve.settings import Settings

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_LINGER = 1.0  # seconds for which a body that is too large is thrown away
_HEADERS = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)


class Gate:
    """Refuses what is not for this server before anything is done for it. The body is read here,
    up to the limit, with a length in the header or without."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app, self._settings = app, settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        open_to_all = _is_open(scope["path"])
        keeping = b"no-cache" if open_to_all else b"no-store"

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                extra = [*_HEADERS, (b"cache-control", keeping)]
                message["headers"] = [*message.get("headers", ()), *extra]
            await send(message)

        try:
            self._check_host(headers.get(b"host"))
            if not open_to_all:
                self._check_key(headers.get(b"authorization", b""))
            if scope["method"] not in ("GET", "HEAD", "OPTIONS"):
                self._check_length(headers.get(b"content-length", b"0"))
                body = await asyncio.wait_for(self._read(receive), self._settings.body_timeout)
                if body is None:
                    return  # the client has gone
                receive = _replay(body, receive)
        except asyncio.TimeoutError:
            await _refuse(ApiError(408, "the body did not arrive in time"), scope, receive, answer)
        except ApiError as error:
            await _refuse(error, scope, receive, answer)
        else:
            await self._app(scope, receive, answer)

    def _check_host(self, host: bytes | None) -> None:
        allowed = self._settings.hosts
        if allowed is None or host is None:  # no browser leaves it out
            return
        name = host.decode("latin-1").lower()
        if name.rpartition(":")[2].isdigit():
            name = name.rpartition(":")[0]
        if name not in allowed:
            raise ApiError(403, f"this server is not known by that name; use {allowed[0]}")

    def _check_key(self, given: bytes) -> None:
        key = self._settings.api_key
        if key is None:
            return
        scheme, _, token = given.partition(b" ")
        right = hmac.compare_digest(token.strip(), key.encode())
        if not right or scheme.lower() != b"bearer":
            raise ApiError(
                401,
                "wrong or no API key; send it as 'Authorization: Bearer KEY'",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )

    def _check_length(self, length: bytes) -> None:
        if not length.isdigit():
            raise ApiError(400, "Content-Length is not a number")
        if len(length) > 18 or int(length) > self._settings.body_limit:
            raise self._too_large

    async def _read(self, receive: Receive) -> bytes | None:
        body, more = bytearray(), True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > self._settings.body_limit:
                raise self._too_large
        return bytes(body)

    @property
    def _too_large(self) -> ApiError:
        return ApiError(413, f"the body is larger than {self._settings.body_limit} bytes")


def _is_open(path: str) -> bool:
    """Whether it can be had without the key: the page, and whether the server is there."""
    return path in ("/", "/health") or path.startswith("/page/")


def _replay(body: bytes, receive: Receive) -> Receive:
    """`body` again, then whatever comes behind it."""
    first = True

    async def again() -> Message:
        nonlocal first
        if first:
            first = False
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return again


async def _refuse(error: ApiError, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer and hang up. What is still coming is thrown away for a moment: a client that sends
    would otherwise find the connection broken before it reads the answer."""
    headers = {**(error.headers or {}), "Connection": "close"}
    response = Json(error.body, error.status_code, headers)
    start = {"type": "http.response.start", "status": response.status_code}
    await send({**start, "headers": response.raw_headers})
    await send({"type": "http.response.body", "body": response.body, "more_body": True})
    if error.status_code != 408:
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(_ignore(receive), _LINGER)
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _ignore(receive: Receive) -> None:
    more = True
    while more:
        more = (await receive()).get("more_body", False)
