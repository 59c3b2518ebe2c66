"""A version's way from the trainer to the engines: served by all of them that can fetch it, or by none."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from attrs import frozen

from areal_core.data import WeightOffer, WeightVersion
from areal_core.errors import RemoteError, WorkerLost
from areal_core.pipeline.background import Background, together
from areal_core.pipeline.condition import Condition
from areal_core.pipeline.events import Events
from areal_core.pipeline.health import HUNG
from areal_core.pipeline.pool import Pool, Seat
from areal_core.pipeline.trace import Trace
from areal_core.protocols import Worker
from areal_core.workers.group import WorkerGroup

Serving = tuple[Seat, Worker]
"""An engine, and the seat that it holds unless it was lost meanwhile."""

PREPARE_TRIES = 3
"""Times an engine may fetch a version before it is given up."""


@frozen
class Route:
    """The transport by name and mechanism. `collective`: both ends must act at the same time."""

    transport: str
    mechanism: str
    collective: bool = False


@frozen
class Passage:
    """The seconds a version took, or several: to publish, to fetch, and for how long admission was held."""

    publish: float = 0.0
    prepare: float = 0.0
    held: float = 0.0

    def __add__(self, other: Passage) -> Passage:
        return Passage(self.publish + other.publish, self.prepare + other.prepare, self.held + other.held)


class Weights:
    """Publishes versions one after another; each is fetched by every engine before any engine swaps.

    Admission is held (`swapping`) for the swap alone. An engine that cannot fetch what others can, or
    fails its swap, is ended, and comes back through `join` with the current version: no engine that
    serves has another one.
    One that has not fetched a version, or swapped it in, after `timeout` seconds is ended as well.

    Once a collective exchange broke off, `sound` is False: its other ends, the trainer among them,
    may wait in it for ever and must be asked nothing more. `broke` is what ended it.
    """

    def __init__(
        self,
        trainer: WorkerGroup,
        engines: Pool,
        route: Route,
        background: Background,
        condition: Condition,
        events: Events,
        trace: Trace,
        committed: Callable[[WeightVersion], None],
        timeout: float | None = None,
    ) -> None:
        """An engine hangs that takes longer than `timeout` seconds to fetch a version, or to swap it in."""
        self._trainer, self._engines, self._route = trainer, engines, route
        self._background, self._condition, self._events, self._trace = background, condition, events, trace
        self._told, self._timeout = committed, timeout
        self._offer: WeightOffer | None = None
        self._coming: WeightOffer | None = None
        self._orphaned = False
        self._lock = asyncio.Lock()  # held while engines swap, so that one that joins does not do so at the same time
        self._spreading: asyncio.Task[None] | None = None
        self.swapping = False
        self.sound = True
        self.broke: Exception | None = None
        self._passage = Passage()

    @property
    def version(self) -> WeightVersion | None:
        """What the engines serve; None before the first version."""
        return self._offer.version if self._offer else None

    def take_passage(self) -> Passage:
        """That of the versions, usually one or none, which all engines took since it was taken before."""
        passage, self._passage = self._passage, Passage()
        return passage

    async def publish(self, version: WeightVersion) -> None:
        """Make the trainer's weights `version` and return once it may change them again.

        The version reaches the engines in the background; `settled` waits for it.
        """
        await self.settled()
        if self._route.collective:
            await self._collective(version)
            return
        began = self._trace.now()
        offer = await self._trainer.call("publish", version)
        published = self._trace.span("publish", "weights", began, version=str(version))
        self._spreading = self._background.spawn(self._spread(offer, published))

    async def settled(self) -> None:
        """Return once the engines serve the last version that was published."""
        if self._spreading is not None:
            await asyncio.shield(self._spreading)

    async def join(self, seat: Seat, limit: float | None = None) -> None:
        """Give a new engine the version that the others serve, then let it serve.

        Nobody waits for its fetch, and it is there when they swap: one that was overtaken meanwhile begins again with
        what is served by then. While there is no trainer, it waits for the next one's first version, as long as that
        takes.

        Raises:
            TimeoutError: with a trainer there, it did not serve within `limit` seconds.

        """
        while not seat.ready:
            await self._condition.until(lambda: not self._waits)
            async with asyncio.timeout(limit):
                await self._catch_up(seat)

    @property
    def _waits(self) -> bool:
        """Whether there is no trainer, whose first version engines that join need."""
        return self._orphaned and not self._route.collective

    async def _catch_up(self, seat: Seat) -> None:
        """Return once an engine that joins serves, or there is no trainer any more."""
        while not (seat.ready or self._waits):
            offer = self._offer
            try:
                await self._offer_to(seat, offer)
                async with self._lock:
                    if self._offer is offer:
                        await self._let_serve(seat, offer)
                        return
                if offer is not None:
                    await self._ask((seat, seat.worker), "discard", offer.version)
            except RemoteError:
                if self._offer is offer:
                    raise  # else the version is gone, perhaps its trainer with it

    async def forget(self) -> None:
        """The trainer that made all this is gone, or will make other weights of the same steps.

        Nothing of it is fetched any more. What engines serve stays, for nobody, until the next version. After a
        collective exchange that broke off they may be stuck, and are replaced. Nothing may be under way.
        """
        coming, self._coming, self._offer, self._spreading = self._coming, None, None, None
        self._orphaned = True
        if not self.sound:
            for seat, engine in self._serving():
                seat.end(engine, "an exchange of weights broke off")
            self.sound, self.broke = True, None
        elif coming is not None:
            await _on_all([self._ask(serving, "discard", coming.version) for serving in self._serving()])

    async def _offer_to(self, seat: Seat, offer: WeightOffer | None) -> None:
        if offer is None:
            return
        if self._route.collective:
            raise WorkerLost(seat.name, f"{self._route.transport} cannot take in an engine that starts later")
        await self._ask((seat, seat.worker), "prepare", offer)

    async def _let_serve(self, seat: Seat, offer: WeightOffer | None) -> None:
        if offer is not None:
            await self._ask((seat, seat.worker), "commit", offer.version)
        seat.ready = True
        self._condition.changed()

    async def _spread(self, offer: WeightOffer, published: float) -> None:
        began, self._coming = self._trace.now(), offer
        asked: list[Serving] = []
        engines = await self._prepare(asked, offer)
        async with self._lock:
            engines += await self._prepare(asked, offer)  # those that joined meanwhile
            prepared = self._trace.span("prepare", "weights", began, version=str(offer.version))
            held = await self._commit(engines, offer.version)
            old, self._offer, self._coming = self._offer, offer, None
            self._passage += Passage(published, prepared, held)
        self._finish(offer.version)
        if old is not None:
            self._background.spawn(self._release(old.version))

    async def _release(self, version: WeightVersion) -> None:
        """Let the trainer free what nobody fetches any more; what it cannot free harms nobody yet."""
        try:
            await self._trainer.call("release", version)
        except RemoteError as error:
            text = f"what version {version} holds could not be freed: {error}"
            self._events.add("release-failed", text, worker=error.worker, version=str(version))

    def _serving(self) -> list[Serving]:
        return [(seat, seat.worker) for seat in self._engines.ready]

    async def _prepare(self, asked: list[Serving], offer: WeightOffer) -> list[Serving]:
        """The engines that have fetched the version, of those not `asked` yet, which are added to them.

        One that cannot is ended. Raises, with nothing changed, when none can: it is not their fault.
        """
        before, engines = len(asked), [serving for serving in self._serving() if serving not in asked]
        asked += engines
        outcomes = await _on_all([self._fetch(serving, offer) for serving in engines])
        told = list(zip(engines, outcomes, strict=True))
        fetched = [serving for serving, error in told if error is None]
        failed = [(serving, error) for serving, error in told if isinstance(error, RemoteError)]
        if failed and (self._trainer.broken or not (fetched or before)):
            await _on_all([self._ask(serving, "discard", offer.version) for serving in asked])
            raise failed[0][1]
        for (seat, engine), error in failed:
            seat.end(engine, f"it could not fetch version {offer.version}: {error.error.text}")
        return fetched

    async def _ask(self, serving: Serving, method: str, *args: Any) -> None:
        """Call an engine; one that takes too long is ended."""
        seat, engine = serving
        try:
            await engine.call(method, *args, timeout=self._timeout)
        except TimeoutError:
            reason = f"{HUNG} it did not {method} the weights within {self._timeout:g} s"
            seat.end(engine, reason)
            raise WorkerLost(engine.name, reason) from None

    async def _fetch(self, serving: Serving, offer: WeightOffer) -> None:
        engine = serving[1]
        for tries in range(1, PREPARE_TRIES + 1):
            try:
                await self._ask(serving, "prepare", offer)
            except RemoteError as error:
                text = f"{engine.name} could not fetch version {offer.version}: {error}"
                self._events.add("weights-failed", text, worker=engine.name, version=str(offer.version), tries=tries)
                if tries == PREPARE_TRIES:
                    raise
            else:
                return

    async def _commit(self, engines: Sequence[Serving], version: WeightVersion) -> float:
        """Swap on all at once; the seconds for which admission was held."""
        began = self._trace.now()
        self.swapping = True
        try:
            outcomes = await _on_all([self._ask(serving, "commit", version) for serving in engines])
            for (seat, engine), outcome in zip(engines, outcomes, strict=True):
                if outcome is not None:
                    self._dismiss(seat, engine, version, outcome)
        finally:
            self.swapping = False
        return self._trace.span("commit", "weights", began, version=str(version))

    def _dismiss(self, seat: Seat, engine: Worker, version: WeightVersion, error: BaseException) -> None:
        """End an engine whose swap failed: nobody knows what its weights are. Its replacement is left alone."""
        if not isinstance(error, RemoteError):
            seat.lose(engine)
            return
        text = f"{seat.name} failed to take version {version} and is restarted: {error}"
        self._events.add("weights-failed", text, "error", worker=seat.name, version=str(version))
        seat.end(engine, f"it failed to take version {version}: {error.error.text}")

    async def _collective(self, version: WeightVersion) -> None:
        """Send and receive at the same time, with admission held for all of it.

        Raises:
            WorkerLost: an engine is missing or lost, for which the others would wait.
            RemoteError: what the first end to fail raised; the others are not waited for.

        """
        offer = WeightOffer(version, self._route.transport, self._route.mechanism)
        if self._orphaned:
            await self._condition.until(lambda: all(seat.ready for seat in self._engines.seats))
        async with self._lock:
            for seat in self._engines.seats:
                if not seat.ready:
                    raise WorkerLost(seat.name, f"{self._route.transport} cannot go on without it")
            began = self._trace.now()
            self.swapping, self.sound = True, False
            try:
                receiving = [self._receive(serving, offer) for serving in self._serving()]
                await together([self._trainer.call("publish", version), *receiving])
            except (RemoteError, WorkerLost) as error:
                self.broke = error
                raise
            finally:
                self.swapping = False
            self.sound = True
            held = self._trace.span("publish and commit", "weights", began, version=str(version))
            self._offer = offer
            self._passage += Passage(held, 0.0, held)
        self._finish(version)

    async def _receive(self, serving: Serving, offer: WeightOffer) -> None:
        await self._ask(serving, "prepare", offer)
        await self._ask(serving, "commit", offer.version)

    def _finish(self, version: WeightVersion) -> None:
        self._orphaned = False
        self._told(version)
        self._condition.changed()


async def _on_all(calls: Sequence[Awaitable[Any]]) -> list[BaseException | None]:
    """What each call came to: None, or its `RemoteError` or `WorkerLost`; any other error is raised."""
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException) and not isinstance(outcome, RemoteError | WorkerLost):
            raise outcome
    return [outcome if isinstance(outcome, BaseException) else None for outcome in outcomes]
