"""What the HTTP layer is told when it starts."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True)
class Settings:
    """`model`: the name that requests call the model by; None: the name that it was loaded by.
    `api_key`: what `Authorization: Bearer` must say; None: nothing.

    `hosts`: names that the Host header may have, with any port; None: all. A server that only this
    machine can reach takes `LOOPBACK`, or a web page could reach it under a name of its own that
    points here (DNS rebinding). `origins`: web pages of other servers that may ask (CORS).

    `body_limit`: bytes of a request's body; `body_timeout`: seconds for all of it to arrive.
    `unsent_limit`: tokens that may wait for a client that reads slowly; with more its request is
    cancelled.
    """

    model: str | None = None
    api_key: str | None = None
    hosts: Sequence[str] | None = None
    origins: Sequence[str] = ()
    body_limit: int = 8 * 2**20
    body_timeout: float = 60.0
    unsent_limit: int = 4096


def hosts_of(address: str) -> Sequence[str] | None:
    """The `hosts` for a server bound to `address`."""
    if address == "localhost":
        return LOOPBACK
    try:
        bound = ipaddress.ip_address(address)
    except ValueError:  # a name
        return None
    name = f"[{bound}]" if bound.version == 6 else str(bound)
    return (*LOOPBACK, name) if bound.is_loopback else None
