"""Engines join and leave while the run goes on."""

from __future__ import annotations

import asyncio
from itertools import count

from areal_core.errors import ArealError, InputError
from areal_core.pipeline.background import Background, together
from areal_core.pipeline.control import Change
from areal_core.pipeline.crew import Crew
from areal_core.pipeline.events import Events
from areal_core.pipeline.pool import Seat

MOST = 4096
"""Engines of a run: as many as one controller was measured with."""

AT_ONCE = 8
"""Engines that start at the same time."""

LEAVE_GRACE = 60.0
"""Seconds that a leaving engine has for what it works on; then that is rolled out elsewhere."""


def check(engines: int) -> None:
    """Raise `InputError` for a number of engines that no run can have."""
    if engines < 1:
        raise InputError("--infer", f"{engines} engines cannot serve a run", "one is the least")
    if engines > MOST:
        raise InputError("--infer", f"{engines} engines are too many", f"{MOST} are the most")


class Elastic:
    """Changes how many engines there are, one change at a time. Neither training nor other engines wait for it."""

    def __init__(self, crew: Crew, background: Background, events: Events, run: str) -> None:
        self._crew, self._background, self._events, self._run = crew, background, events, run
        self._ended = False
        self._starting = asyncio.Semaphore(AT_ONCE)
        self._changing: asyncio.Task[Change | ArealError] | None = None

    async def scale(self, engines: int) -> Change:
        """Have so many; returns once they serve, or are gone. A change goes on when nobody waits for it any more.

        Raises:
            InputError: that cannot be: too few, too many, no devices, a transport that binds all engines together,
                another change is under way, or the run ends.
            WorkerLost, RemoteError: an engine could not be started.

        """
        check(engines)
        if self._ended:
            raise self._no_run()
        pool = self._crew.engines
        if pool.whole:
            problem = "the run's weight transport binds all engines together: none can join or leave"
            raise InputError("--infer", problem, "choose another `weights` in the spec")
        if self._changing is not None and not self._changing.done():
            raise InputError("--infer", "engines are joining or leaving at this moment", "try again once they have")
        self._changing = self._background.spawn(self._change(engines))
        try:
            outcome = await asyncio.shield(self._changing)
        except asyncio.CancelledError:
            if self._changing.cancelled():
                raise self._no_run() from None
            raise
        if isinstance(outcome, ArealError):
            raise outcome
        return outcome

    def end(self) -> None:
        """From now on nobody joins or leaves: the run ends, and with it what `background` still does."""
        self._ended = True

    def _no_run(self) -> InputError:
        return InputError(self._run, "its run ended meanwhile")

    async def _change(self, engines: int) -> Change | ArealError:
        """What came of it: an error is the asker's, not the run's."""
        seats = self._crew.engines.seats
        before = len(seats)
        try:
            joined = await together([self._join(index) for index in self._free(engines - before)])
            left = await together([self._leave(seat) for seat in self._least(before - engines)])
        except ArealError as error:
            return error
        return Change(before, tuple(sorted(joined)), tuple(sorted(left)))

    def _free(self, wanted: int) -> list[int]:
        """The first places that nobody has."""
        taken = {seat.name for seat in self._crew.engines.seats}
        places = (index for index in count() if f"engine-{index}" not in taken)
        return [next(places) for _ in range(wanted)]

    def _least(self, wanted: int) -> list[Seat]:
        """Those that can go most easily: that do not serve now, then the last."""
        order = sorted(enumerate(self._crew.engines.seats), key=lambda at: (at[1].ready, -at[0]))
        return [seat for _, seat in order[: max(0, wanted)]]

    async def _join(self, index: int) -> str:
        async with self._starting:
            seat = await self._crew.hire_engine(index)
        engines = len(self._crew.engines.seats)
        self._events.add("engine-joined", f"{seat.name} serves", "info", worker=seat.name, engines=engines)
        return seat.name

    async def _leave(self, seat: Seat) -> str:
        load = seat.load
        await self._crew.let_go(seat, LEAVE_GRACE)
        engines = len(self._crew.engines.seats)
        text = f"{seat.name} has left; it was working on {load} trajectories when it was told to"
        self._events.add("engine-left", text, "info", worker=seat.name, engines=engines, load=load)
        return seat.name
