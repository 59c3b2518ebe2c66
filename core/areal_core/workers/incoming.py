"""The calls that the other end of a link has made and that are still running here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any

from areal_core.errors import Remote
from areal_core.workers.faults import as_remote
from areal_core.workers.message import Kind, Message
from areal_core.workers.outgoing import WINDOW, Payload, Send
from areal_core.workers.service import Method

_LARGEST_CREDIT = 1 << 20


class _Credit:
    """How many items of a stream the reader still has room for."""

    def __init__(self) -> None:
        self._left, self._more = WINDOW, asyncio.Event()

    def add(self, more: int) -> None:
        self._left += more
        self._more.set()

    async def spend(self) -> None:
        while not self._left:
            self._more.clear()
            await self._more.wait()
        self._left -= 1


class _Ready:
    """Items of a stream: what comes within one turn of the loop leaves as one message."""

    def __init__(self, send: Callable[[list[Any]], None]) -> None:
        self._send, self._items = send, list[Any]()

    def add(self, item: Any) -> None:
        if not self._items:
            asyncio.get_running_loop().call_soon(self.flush)
        self._items.append(item)

    def flush(self) -> None:
        if self._items:
            items, self._items = self._items, []
            self._send(items)


class Incoming:
    """Runs each call in a task of its own and answers it."""

    KINDS = frozenset({Kind.CALL, Kind.STREAM, Kind.CANCEL, Kind.MORE})

    def __init__(
        self,
        service: object | None,
        methods: Mapping[str, Method],
        send: Send,
        drained: Callable[[], Awaitable[None]],
    ) -> None:
        self._service, self._methods, self._send, self._drained = service, methods, send, drained
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._credits: dict[int, _Credit] = {}

    def take(self, message: Message, payload: Payload) -> None:
        """A message of `KINDS` has come; raises `ValueError` where it cannot be meant."""
        match message.kind:
            case Kind.CANCEL:
                if (task := self._tasks.get(message.number)) is not None:
                    task.cancel()
            case Kind.MORE:
                self._more(message.number, payload(int))
            case _:
                self._begin(message, payload)

    def cancel(self) -> None:
        """Nobody waits for answers any more."""
        for task in self._tasks.values():
            task.cancel()

    async def ended(self) -> None:
        """Return once every call has ended."""
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _begin(self, message: Message, payload: Payload) -> None:
        number, streams = message.number, message.kind is Kind.STREAM
        if number in self._tasks:
            raise ValueError(f"call {number} runs already")
        method = self._methods.get(message.name)
        if method is None or method.streams is not streams:
            self._send(Kind.ERROR, number, payload=Remote("AttributeError", f"there is no {message.name!r} to call"))
            return
        try:
            args = payload(method.arguments)
        except ValueError as error:
            self._send(Kind.ERROR, number, payload=Remote("TypeError", f"{method.name}: {error}"))
            return
        task = self._tasks[number] = asyncio.create_task(self._answer(number, method, args))
        task.add_done_callback(lambda _: self._forget(number))

    async def _answer(self, number: int, method: Method, args: tuple[Any, ...]) -> None:
        call = getattr(self._service, method.name)
        try:
            await (self._yield(number, call(*args)) if method.streams else self._reply(number, call(*args)))
        except asyncio.CancelledError:
            self._send(Kind.ERROR, number, payload=Remote("CancelledError", "the call was cancelled"))
        except BaseException as error:  # unanswered, it would hang the caller, and some would end the loop
            self._send(Kind.ERROR, number, payload=as_remote(error))

    async def _reply(self, number: int, result: Awaitable[Any]) -> None:
        self._send(Kind.REPLY, number, payload=await result)
        await self._drained()

    async def _yield(self, number: int, items: AsyncGenerator[Any, None]) -> None:
        credit = self._credits[number] = _Credit()
        ready = _Ready(partial(self._items, number))
        try:
            async with aclosing(items):
                async for item in items:
                    await credit.spend()
                    ready.add(item)
                    await self._drained()
        finally:
            ready.flush()
        self._send(Kind.END, number)

    def _items(self, number: int, items: list[Any]) -> None:
        """Send `items`; where they cannot cross, that ends the stream."""
        try:
            self._send(Kind.ITEMS, number, payload=items)
        except Exception as error:
            self._send(Kind.ERROR, number, payload=as_remote(error))
            self._tasks[number].cancel()

    def _forget(self, number: int) -> None:
        del self._tasks[number]
        self._credits.pop(number, None)

    def _more(self, number: int, more: int) -> None:
        if not 0 < more <= _LARGEST_CREDIT:
            raise ValueError(f"credit of {more}")
        if (credit := self._credits.get(number)) is not None:
            credit.add(more)
