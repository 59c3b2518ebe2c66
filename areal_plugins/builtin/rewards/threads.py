"""Plain functions off the loop: each call in a thread of its own, which nothing can end where it hangs."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

AT_ONCE = min(32, (os.cpu_count() or 1) + 4)
"""Calls that run at once, those left behind not counted."""

LEFT_BEHIND = 4 * AT_ONCE
"""So many calls that still run though nobody waits for them, and the process ends: they take its time and memory.

More than are cancelled at once with the groups that they judge, slow but sound.
"""

log = logging.getLogger(__name__)


class Threads:
    """Calls `function`. A call that is cancelled leaves its thread behind, and its place to the next."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self._name, self._function = name, function
        self._places = asyncio.Semaphore(AT_ONCE)
        self._left = set[Future[Any]]()

    async def call(self, *args: Any, **kwargs: Any) -> Any:
        """The function's result."""
        async with self._places:
            result = Future[Any]()
            result.set_running_or_notify_cancel()  # it can be left behind, but not cancelled
            threading.Thread(target=self._work, args=(result, args, kwargs), name=self._name, daemon=True).start()
            try:
                return await asyncio.wrap_future(result)
            except asyncio.CancelledError:
                self._leave(result)
                raise

    def _work(self, result: Future[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        try:
            value = self._function(*args, **kwargs)
        except StopIteration as error:  # no future takes this one
            result.set_exception(RuntimeError(f"it raised {error!r}"))
        except BaseException as error:
            result.set_exception(error)
        else:
            result.set_result(value)

    def _leave(self, result: Future[Any]) -> None:
        self._left.add(result)
        result.add_done_callback(self._left.discard)
        if len(self._left) >= LEFT_BEHIND:
            way_out = "give it a `timeout`, so that it runs in processes that can be killed"
            log.critical("%d calls of %s hang; this worker ends, for a fresh one: %s", LEFT_BEHIND, self._name, way_out)
            os._exit(1)
