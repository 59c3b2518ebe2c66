"""How two ends get to know each other: the same protocol, the same release, the same key.

Both ends send a `Hello`, prove by an HMAC over both that they hold the run's key, which itself never
travels, and only then say who they are. Either end finds out by itself what does not fit.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import sys
from functools import cache
from typing import Literal, TypeVar

import msgspec
from attrs import field, frozen

from areal_core import installed
from areal_core.errors import ArealError
from areal_core.workers.wire import FRAME_LIMIT, Wire

KEY_VARIABLE = "AREAL_WORKER_KEY"
"""Environment variable that brings a worker the run's key, in hexadecimal."""

PROTOCOL = 1
"""Of frames and messages. The hello itself never changes."""

Side = Literal["dialer", "listener"]
T = TypeVar("T")


class Refused(ArealError):
    """The two ends do not belong together."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem

    def __str__(self) -> str:
        return self.problem


@cache
def _release() -> str:
    return installed.version("areal-plugins") or "(not installed)"


@frozen
class Hello:
    """What a stranger may know."""

    magic: str = "areal"
    protocol: int = field(factory=lambda: PROTOCOL)
    release: str = field(factory=lambda: _release())
    nonce: bytes = field(factory=lambda: secrets.token_bytes(16))


@frozen
class Card:
    """Who an end is: a worker by name, role and address, and which of its controller's starts it comes of.

    The controller's also says where it finds modules (`path`, if `prefix` is the same environment's)
    and which local plugins to import.
    """

    name: str
    role: str = ""
    address: str = ""
    start: str = ""
    prefix: str = sys.prefix
    path: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


async def greet(wire: Wire, side: Side, key: bytes, card: Card, timeout: float = 10.0) -> Card:
    """The other end's card, once both have proved themselves; the wire then takes large frames.

    Raises:
        Refused: the other end speaks otherwise, has another key, is silent or leaves; says which.

    """
    try:
        async with asyncio.timeout(timeout):
            return await _greet(wire, side, key, card)
    except Refused as error:
        wire.close(str(error))
        raise
    except TimeoutError:
        wire.abort("silent")
        raise Refused(f"the other end did not answer within {timeout:g} s") from None
    except ConnectionError as error:
        raise Refused(str(error)) from error


async def _greet(wire: Wire, side: Side, key: bytes, card: Card) -> Card:
    mine = msgspec.msgpack.encode(Hello())
    wire.send(mine)
    theirs = bytes((await wire.receive())[0])
    _compare(_decode(theirs, Hello))
    wire.send(_proof(key, side, mine, theirs))
    proof = bytes((await wire.receive())[0])
    if not hmac.compare_digest(proof, _proof(key, _other(side), theirs, mine)):
        raise Refused("the other end has another key: it belongs to another run")
    wire.limit = FRAME_LIMIT
    wire.send(msgspec.msgpack.encode(card))
    return _decode(bytes((await wire.receive())[0]), Card)


def _compare(theirs: Hello) -> None:
    mine = Hello()
    for what in ("magic", "protocol", "release"):
        here, there = getattr(mine, what), getattr(theirs, what)
        if here != there:
            raise Refused(f"{what} {there} at the other end, {here} here: install the same areal-plugins in both")


def _decode(data: bytes, kind: type[T]) -> T:
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except ValueError as error:
        raise Refused(f"the other end does not speak this protocol: {error}") from error


def _other(side: Side) -> Side:
    return "listener" if side == "dialer" else "dialer"


def _proof(key: bytes, side: Side, own: bytes, other: bytes) -> bytes:
    return hmac.digest(key, b"\0".join((side.encode(), own, other)), "sha256")
