"""Asking workers how they are: whether their loop answers, what they say, and how full their memory is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from areal_core.errors import RemoteError, WorkerLost
from areal_core.pipeline.events import Events
from areal_core.protocols import Worker
from areal_core.workers.plans import Health

ASKS = 4
"""Questions that go unanswered before a worker hangs: a controller that stood still itself must not blame it."""

HUNG = "hung:"
"""What the reason of a worker's end begins with when it was there but did not answer."""


def manner(reason: str) -> str:
    """How a worker was lost: `dead`, or `hung`."""
    return "hung" if reason.startswith(HUNG) else "dead"


End = Callable[[Worker, str], None]
"""Ends a worker that is there but does not serve, because of what the second argument says."""


class Checkup:
    """Asks a worker `health` every so often. What it has to say becomes events; one that is silent is ended."""

    def __init__(self, events: Events, every: float, timeout: float) -> None:
        """Seconds between questions, and seconds of silence that mean that it hangs."""
        self._events, self._every, self._timeout = events, every, timeout

    async def attend(self, worker: Worker, end: End) -> None:
        """Ask `worker` until it is gone."""
        silent, complained = 0, False
        while True:
            await asyncio.sleep(0 if silent else self._every)
            try:
                health = await self._ask(worker)
            except TimeoutError:
                silent += 1
                if silent == ASKS:
                    end(worker, f"{HUNG} no answer for {self._timeout:g} s")
                    return
            except WorkerLost:
                return
            except RemoteError as error:
                silent = 0
                if not complained:
                    self._events.add("no-health", f"{worker.name} cannot say how it is: {error}", worker=worker.name)
                complained = True
            else:
                silent = 0
                self._tell(worker.name, health)

    async def _ask(self, worker: Worker) -> Health:
        return cast(Health, await worker.call("health", timeout=self._timeout / ASKS))

    def _tell(self, worker: str, health: Health) -> None:
        for note in health.notes:
            self._events.add(note.kind, f"{worker}: {note.text}", note.level, worker=worker, **note.figures)
