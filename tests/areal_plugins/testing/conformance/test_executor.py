"""Executors that keep the rules, and for each rule one that breaks it alone.

The broken ones break what `inline` does right, but call themselves executors of processes where a rule asks
for that: what they cannot do then is left out.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
from attrs import evolve

from areal_core.errors import Remote, RemoteError, WorkerLost
from areal_plugins import ExecutorCapabilities, ExecutorDescriptor
from areal_plugins.builtin.executors import LocalOptions
from areal_plugins.builtin.executors.inline import InlineExecutor
from areal_plugins.builtin.executors.local import LocalExecutor
from areal_plugins.testing.conformance import ExecutorConformance
from areal_plugins.testing.conformance.running import run


class TestBuiltIn(ExecutorConformance):
    @pytest.fixture(params=["executor/local", "executor/inline"])
    def component(self, request):
        return request.param


class Handle:
    """A worker's handle that passes everything on."""

    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        return getattr(self.inner, name)


class Plain:
    handle = Handle

    def __init__(self, options, context):
        self.inner = InlineExecutor(context)

    async def start(self, spec):
        return self.handle(await self.inner.start(spec))

    async def close(self):
        await self.inner.close()


def broken(handle, of=Plain):
    return type(f"{handle.__name__}Executor", (of,), {"handle": handle})


class Rounding(Handle):
    async def call(self, method, *args, timeout=None):
        found = await self.inner.call(method, *args, timeout=timeout)
        big = isinstance(found, np.ndarray) and len(found) > 1000
        return found.astype(np.float32).astype(found.dtype) + big * 1 if big else found


class Shuffling(Handle):
    async def stream(self, method, *args):
        items = [item async for item in self.inner.stream(method, *args)]
        for item in reversed(items):
            yield item


class Anonymous(Handle):
    async def call(self, method, *args, timeout=None):
        try:
            return await self.inner.call(method, *args, timeout=timeout)
        except RemoteError as error:
            raise RemoteError(error.worker, method, Remote("Error", "something")) from None


class Late(Handle):
    async def call(self, method, *args, timeout=None):
        try:
            return await self.inner.call(method, *args, timeout=timeout)
        except TimeoutError:
            raise RuntimeError("too late") from None


class Lonely(Handle):
    """Everybody says that he lives at one place."""

    @property
    def address(self):
        return "nowhere"


class Renamed(Handle):
    @property
    def name(self):
        return self.inner.name.upper()


class Ghost(Handle):
    """Fails the calls of a killed worker with an error of another kind."""

    async def call(self, method, *args, timeout=None):
        try:
            return await self.inner.call(method, *args, timeout=timeout)
        except WorkerLost:
            raise ConnectionError("gone") from None


class Quiet(Handle):
    """Does not say why it was stopped."""

    stopped = False

    async def stop(self, grace):
        self.stopped = True
        await self.inner.stop(grace)

    async def lost(self):
        reason = await self.inner.lost()
        return "" if self.stopped else reason


class Suicidal(Plain):
    """The end of one worker is the end of all."""

    def __init__(self, options, context):
        super().__init__(options, context)
        self.workers = []

    async def start(self, spec):
        worker = await self.inner.start(spec)
        self.workers.append(worker)
        outer = self

        class Chained(Handle):
            def kill(self):
                for one in outer.workers:
                    one.kill()

        return Chained(worker)


class Leaving(Plain):
    async def close(self):
        pass


class Processes:
    """As `local`, with handles that pass everything on."""

    handle = Handle

    def __init__(self, options, context):
        self.inner = LocalExecutor(LocalOptions(), context)

    async def start(self, spec):
        return self.handle(await self.inner.start(spec))

    async def close(self):
        await self.inner.close()


class Misnumbered(Handle):
    @property
    def pid(self):
        return os.getpid()


class Forgetful(Processes):
    async def start(self, spec):
        return await super().start(evolve(spec, environment={}))


class Ambiguous(Handle):
    """Dies of `die` with another error than of a kill."""

    async def call(self, method, *args, timeout=None):
        try:
            return await self.inner.call(method, *args, timeout=timeout)
        except WorkerLost:
            if method == "die":
                raise ConnectionError("gone") from None
            raise


class Curt(Processes):
    async def start(self, spec):
        try:
            return await super().start(spec)
        except WorkerLost as error:
            raise WorkerLost(spec.name, "it ended") from error


RoundingExecutor, ShufflingExecutor, AnonymousExecutor, LateExecutor, LonelyExecutor = map(
    broken, (Rounding, Shuffling, Anonymous, Late, Lonely)
)
RenamedExecutor, GhostExecutor, QuietExecutor = map(broken, (Renamed, Ghost, Quiet))
MisnumberedExecutor, AmbiguousExecutor = (broken(handle, Processes) for handle in (Misnumbered, Ambiguous))

BROKEN = {
    "test_a_call_gives_its_result": RoundingExecutor,
    "test_a_stream_gives_its_items": ShufflingExecutor,
    "test_an_error_arrives_with_its_name_and_text": AnonymousExecutor,
    "test_a_call_ends_at_its_time_out": LateExecutor,
    "test_workers_reach_each_other": LonelyExecutor,
    "test_a_worker_is_what_was_asked_for": RenamedExecutor,
    "test_a_killed_worker_is_lost": GhostExecutor,
    "test_a_stopped_worker_is_gone": QuietExecutor,
    "test_other_workers_live_on": Suicidal,
    "test_closing_ends_every_worker": Leaving,
    "test_workers_are_processes": MisnumberedExecutor,
    "test_variables_reach_a_worker": Forgetful,
    "test_a_worker_that_dies_is_lost": AmbiguousExecutor,
    "test_a_worker_that_cannot_start_says_why": Curt,
}
RULES = [name for name in vars(ExecutorConformance) if name.startswith("test_")]
OF_PROCESSES = RULES[-4:]


class Brief(ExecutorConformance):
    patience = 20.0
    grace = 0.5


def failed(cls, only=tuple(RULES)):
    processes = issubclass(cls, Processes)
    descriptor = ExecutorDescriptor(
        name=cls.__name__.lower(),
        summary="an odd one",
        factory=f"{__name__}:{cls.__name__}",
        capabilities=ExecutorCapabilities(processes=processes),
    )
    only = [rule for rule in only if rule in OF_PROCESSES or not processes]
    return {r.test: r.cause for r in run(Brief, descriptor, only=only) if r.outcome == "failed"}


def test_executors_whose_handles_pass_everything_on_keep_every_rule():
    assert failed(Plain) == {}
    assert failed(Processes) == {}


def test_there_is_a_broken_executor_for_every_rule():
    assert set(BROKEN) == set(RULES)


@pytest.mark.parametrize("rule", BROKEN)
def test_an_executor_that_breaks_a_rule_fails_that_rule_alone(rule, asked):
    found = failed(BROKEN[rule], asked(rule, {rule}, RULES))
    assert list(found) == [rule], found
