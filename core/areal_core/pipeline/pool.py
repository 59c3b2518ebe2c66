"""The places of workers of one kind: who holds each now, and how loaded it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from attrs import define, field

from areal_core.contexts import WorkerSpec
from areal_core.errors import WorkerLost
from areal_core.pipeline.condition import Condition
from areal_core.pipeline.ranking import Ranking
from areal_core.protocols import Worker


@define(eq=False)
class Seat:
    """A place for one worker: who holds it now, the trajectories it works on, and how often it was replaced.

    `fault` is why its worker was ended from here; `lighter` is told when its load falls.
    """

    spec: WorkerSpec
    held: Worker | None = None
    ready: bool = False
    load: int = 0
    restarts: int = 0
    fault: str = ""
    lighter: Callable[[Seat], None] = field(default=lambda seat: None, repr=False)

    @property
    def worker(self) -> Worker:
        assert self.held is not None
        return self.held

    @property
    def name(self) -> str:
        return self.spec.name

    def lose(self, worker: Worker) -> None:
        """Give `worker` no more work: it is gone, though its end may not have been noticed yet."""
        if self.held is worker:
            self.ready = False

    def end(self, worker: Worker, fault: str) -> None:
        """Kill `worker`, which is there but cannot serve any more: it counts as lost, because of `fault`."""
        if self.held is worker:
            self.ready, self.fault = False, fault
        worker.kill()

    def take(self, load: int) -> None:
        """Count `load` trajectories more."""
        self.load += load

    def free(self, load: int) -> None:
        """Count them no more."""
        self.load -= load
        self.lighter(self)


class Pool:
    """Seats of one kind; work goes to the lightest that is ready, the first of equals.

    `whole`: what they do needs all of them, so that none can be given up.
    """

    def __init__(self, specs: Sequence[WorkerSpec], condition: Condition, whole: bool = False) -> None:
        self.seats: list[Seat] = []
        self.whole = whole
        self._condition = condition
        self._ranking: Ranking[Seat] = Ranking(())
        for spec in specs:
            self.add(Seat(spec))

    @property
    def ready(self) -> list[Seat]:
        """Those that serve."""
        return [seat for seat in self.seats if seat.ready]

    @property
    def serves(self) -> bool:
        """Whether any of them does."""
        return any(seat.ready for seat in self.seats)

    def add(self, seat: Seat) -> None:
        """One more, after all others."""
        self.seats.append(seat)
        self._ranking.add(seat)
        seat.lighter = self._ranking.lighter

    def remove(self, seat: Seat) -> None:
        """It gets no more work, and is not counted any more."""
        self.seats.remove(seat)
        self._ranking.remove(seat)

    def lightest(self) -> Seat:
        """Where the next work goes; raises `ValueError` when none is ready."""
        return self._ranking.first()

    async def ask(self, method: str, *args: Any) -> Any:
        """What any of them answers; one that is lost meanwhile is not the last that is asked."""
        while True:
            await self._condition.until(lambda: self.serves)
            seat = self.lightest()
            worker = seat.worker
            try:
                return await worker.call(method, *args)
            except WorkerLost:
                seat.lose(worker)
