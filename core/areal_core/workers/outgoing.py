"""The calls that this end of a link has made and that are not answered yet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from itertools import count
from typing import Any, Protocol

from areal_core.errors import Remote, RemoteError, WorkerLost
from areal_core.workers.message import Kind, Message
from areal_core.workers.service import Method

WINDOW = 32
"""Items of a stream that may be under way before the reader has taken one."""

_END = object()
Payload = Callable[[Any], Any]
"""Decodes the payload of the message at hand as a type."""


class Send(Protocol):
    """Queues a message."""

    def __call__(self, kind: Kind, number: int, name: str = "", payload: Any = None) -> None: ...


class _Call:
    """Waits for one answer."""

    def __init__(self, method: str, result: Any) -> None:
        self.method, self.result = method, result
        self._answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def put(self, value: Any) -> None:
        if not self._answer.done():
            self._answer.set_result(value)

    def fail(self, error: Exception) -> None:
        if not self._answer.done():
            self._answer.set_exception(error)

    async def get(self) -> Any:
        return await self._answer


class _Stream:
    """Waits for many, which come some at a time."""

    def __init__(self, method: str, item: Any) -> None:
        self.method, self.result = method, list[item]
        self._items: asyncio.Queue[Any] = asyncio.Queue()

    def put(self, items: Any) -> None:
        for item in items:
            self._items.put_nowait(item)

    def fail(self, error: Exception) -> None:
        self._items.put_nowait(error)

    async def get(self) -> Any:
        item = await self._items.get()
        if isinstance(item, Exception):
            raise item
        return item


class Outgoing:
    """Numbers calls and matches answers with them."""

    def __init__(self, name: str, offers: Mapping[str, Method], send: Send) -> None:
        self._name, self._offers, self._send = name, offers, send
        self._ids = count(1)
        self._pending: dict[int, _Call | _Stream] = {}

    async def call(self, method: str, args: tuple[Any, ...]) -> Any:
        """The answer; a call that is given up is cancelled at the other end."""
        offered = self._offered(method, streams=False)
        return await self._ask(Kind.CALL, _Call(method, offered.result), offered.complete(args))

    async def ping(self) -> None:
        """Return once the other end answers."""
        await self._ask(Kind.PING, _Call("ping", None), None)

    async def stream(self, method: str, args: tuple[Any, ...]) -> AsyncGenerator[Any, None]:
        """The items; a stream that is left early is closed at the other end."""
        offered = self._offered(method, streams=True)
        stream, number, taken = _Stream(method, offered.result), next(self._ids), 0
        self._send(Kind.STREAM, number, method, offered.complete(args))
        self._pending[number] = stream
        try:
            while (item := await stream.get()) is not _END:
                yield item
                taken += 1
                if taken == WINDOW // 2:
                    self._send(Kind.MORE, number, payload=taken)
                    taken = 0
        finally:
            self._give_up(number)

    def take(self, message: Message, payload: Payload) -> None:
        """An answer has come; one to a call that was given up is dropped."""
        waiting = self._pending.get(message.number)
        if waiting is None:
            return
        if message.kind is not Kind.ITEMS:
            del self._pending[message.number]
        match message.kind:
            case Kind.REPLY | Kind.ITEMS:
                self._settle(waiting, payload)
            case Kind.ERROR:
                waiting.fail(RemoteError(self._name, waiting.method, payload(Remote)))
            case Kind.END:
                waiting.put([_END])
            case Kind.PONG:
                waiting.put(None)
            case _:
                raise ValueError(f"{message.kind.name} is no answer")

    def fail(self, reason: str) -> None:
        """The link has ended: nothing will be answered any more."""
        pending, self._pending = self._pending, {}
        for waiting in pending.values():
            waiting.fail(WorkerLost(self._name, reason))

    async def _ask(self, kind: Kind, call: _Call, args: tuple[Any, ...] | None) -> Any:
        number = next(self._ids)
        self._send(kind, number, call.method, args)
        self._pending[number] = call
        try:
            return await call.get()
        finally:
            self._give_up(number)

    def _settle(self, waiting: _Call | _Stream, payload: Payload) -> None:
        try:
            waiting.put(payload(waiting.result))
        except ValueError as error:
            waiting.fail(
                RemoteError(
                    self._name, waiting.method, Remote("ValueError", f"its answer is no {waiting.result}: {error}")
                )
            )

    def _give_up(self, number: int) -> None:
        if self._pending.pop(number, None) is not None:
            self._send(Kind.CANCEL, number)

    def _offered(self, method: str, streams: bool) -> Method:
        offered = self._offers.get(method)
        if offered is None or offered.streams is not streams:
            kind = "stream" if streams else "method"
            raise RemoteError(self._name, method, Remote("AttributeError", f"there is no such {kind}"))
        return offered
