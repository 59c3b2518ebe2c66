"""Deliberate bugs of the controller, each of which the simulation has to find.

A find counts if the kernel without the bug holds the same seed.

A mutant is one replaced piece of the kernel's source, put in place while the module is imported, in an
interpreter of its own. One whose piece is no longer there is an error: the kernel was changed, and so must it be.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import re
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.machinery import ModuleSpec
from types import ModuleType

from attrs import frozen

_FOUND = re.compile(r"found at seed (\d+)")

SEEDS = 500
"""Within so many seeds each mutant has to be found."""


@frozen
class Mutant:
    """`old`, found once in the pipeline's `module`, becomes `new`."""

    name: str
    module: str
    old: str
    new: str


MUTANTS = (
    Mutant(
        "admission off by one",
        "staleness",
        "return self.running + accepted < steps * self.bound.groups",
        "return self.running + accepted <= steps * self.bound.groups",
    ),
    Mutant(
        "admission counts a batch as trained before its weights are served",
        "staleness",
        "steps = min(self.committed + self.bound.max_staleness + 1, self.bound.last_step)",
        "steps = min(self.step + self.bound.max_staleness + 1, self.bound.last_step)",
    ),
    Mutant(
        "deadlines are not looked at when a batch is taken",
        "staleness",
        "return self.bound.drop or self._feasible(self.bound.groups, self.step)",
        "return True",
    ),
    Mutant(
        "what is too old is not dropped",
        "buffer",
        "        for sequence in self._ledger.expire():\n",
        "        for sequence in ():\n",
    ),
    Mutant(
        "a group that fails is not counted as dropped",
        "rollout",
        'self._drop(order.sequence, "failed")',
        "del self._rolling[order.sequence]; self._ledger.drop(order.sequence)",
    ),
    Mutant(
        "a resume forgets what was under way",
        "train",
        "for sequence, task in self._state.under_way:",
        "for sequence, task in ():",
    ),
    Mutant(
        "a group that goes on after a resume counts as if it began anew",
        "staleness",
        "self._run(sequence, self.deadline(oldest))",
        "self._run(sequence, self.committed + self.bound.max_staleness)",
    ),
    Mutant(
        "a resume forgets what was buffered",
        "train",
        "self._buffer.restore(self._state.buffered)",
        "self._buffer.restore(())",
    ),
    Mutant(
        "a resume draws the same tasks again",
        "train",
        "TaskSampler(run.info.seed, sources, drawn=state.drawn)",
        "TaskSampler(run.info.seed, sources)",
    ),
    Mutant(
        "a restarted engine serves before it has the weights",
        "weights",
        "                await self._offer_to(seat, offer)\n",
        "                seat.ready = True\n",
    ),
    Mutant(
        "a version counts as served before any engine has fetched it",
        "weights",
        "        began, self._coming = self._trace.now(), offer\n",
        "        began, self._coming = self._trace.now(), offer\n        self._told(offer.version)\n",
    ),
    Mutant(
        "an engine whose swap failed goes on serving",
        "weights",
        "                    self._dismiss(seat, engine, version, outcome)\n",
        "                    pass\n",
    ),
    Mutant(
        "orders go out while engines swap",
        "dispatch",
        'return mode != "generate" or (self._engines.serves and not self._swapping())',
        'return mode != "generate" or self._engines.serves',
    ),
    Mutant(
        "a trainer that is lost comes back as if nothing had happened since",
        "controller",
        "self._state = evolve(state, incarnation=self._state.incarnation + 1)",
        "self._state = evolve(state, drawn=self._state.drawn, incarnation=self._state.incarnation + 1)",
    ),
    Mutant(
        "a lost trainer's files are not taken back",
        "opening",
        "    await asyncio.to_thread(run.directory.rewind, state.step)\n",
        "",
    ),
    Mutant(
        "a worker that is lost is not replaced",
        "supervise",
        "                await self._replace(pool, seat, bring, reason)\n",
        "                await asyncio.Event().wait()\n",
    ),
    Mutant(
        "a rollout that failed is never tried again",
        "dispatch",
        "                    lost = toll.add(error)\n",
        "                    lost = await asyncio.Event().wait()\n",
    ),
    Mutant(
        "groups of an engine whose machine is gone are not taken back",
        "dispatch",
        "            lent.reschedule(loop.time() + self._patience.grace)\n",
        "",
    ),
    Mutant(
        "a checkpoint does not hold what is under way",
        "checkpoint",
        '"under_way": [[sequence, asdict(task)] for sequence, task in state.under_way],',
        '"under_way": [],',
    ),
    Mutant(
        "lines after the step of a resume stay in the files",
        "lines",
        "            later = _stepped(line).step > step\n",
        "            later = False\n",
    ),
)


def hunt(names: Sequence[str], count: int, jobs: int) -> int:
    """Look for these mutants, all where none is named, and tell at which seed each was found; 1: one was not."""
    chosen = [mutant for mutant in MUTANTS if not names or mutant.name in names]
    missed = 0
    with ThreadPoolExecutor(jobs) as pool:
        for mutant, found in zip(chosen, pool.map(lambda mutant: _elsewhere(mutant, count), chosen), strict=True):
            seed = _FOUND.search(found.stdout)
            counts = seed is not None and _holds(int(seed[1]))
            missed += not counts
            doubt = "" if counts or not seed else "; but the kernel without the bug does not hold that seed either"
            sys.stdout.write(f"{mutant.name}: {found.stdout.strip() or found.stderr.strip()}{doubt}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{len(chosen) - missed} of {len(chosen)} mutants were found within {count} seeds\n")
    return int(missed > 0)


def _holds(seed: int) -> bool:
    """Whether the kernel as it is keeps every invariant at this seed."""
    from areal_plugins.testing.sim.runner import seeds

    return next(seeds([seed])).broken is None


def _elsewhere(mutant: Mutant, count: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "areal_plugins.testing.sim", "--mutant", mutant.name, "--seeds", str(count)]
    return subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  ourselves


def hunt_here(name: str, first: int, count: int) -> int:
    """In this interpreter, in which the kernel's pipeline was not imported yet: 0 when the mutant was found."""
    install(next(mutant for mutant in MUTANTS if mutant.name == name))
    from areal_plugins.testing.sim.runner import seeds

    for outcome in seeds(range(first, first + count)):
        if outcome.broken is not None:
            broken = outcome.broken
            sys.stdout.write(f"found at seed {outcome.seed}: {broken.invariant}: {broken.text}\n")
            return 0
    sys.stdout.write(f"NOT found within {count} seeds\n")
    return 1


def mutated(mutant: Mutant, source: str) -> str:
    """The source with the bug in it. Raises `ValueError` where its place is not there, or is there twice."""
    if (found := source.count(mutant.old)) != 1:
        raise ValueError(f"mutant {mutant.name!r}: its piece of {mutant.module}.py is there {found} times, not once")
    return source.replace(mutant.old, mutant.new)


def install(mutant: Mutant) -> None:
    """Have the module imported with the bug in it."""
    name = f"areal_core.pipeline.{mutant.module}"
    if name in sys.modules:
        raise ValueError(f"{name} is imported already")
    sys.meta_path.insert(0, _Finder(name, mutant))


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module, and has its source changed."""

    def __init__(self, name: str, mutant: Mutant) -> None:
        self._name, self._mutant = name, mutant

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != self._name:
            return None
        found = importlib.machinery.PathFinder.find_spec(name, path)
        assert found is not None
        assert found.origin is not None
        return importlib.util.spec_from_loader(name, _Loader(name, found.origin, self._mutant), origin=found.origin)


class _Loader(importlib.machinery.SourceFileLoader):
    """Compiles the changed source, and leaves no compiled file behind."""

    def __init__(self, name: str, path: str, mutant: Mutant) -> None:
        super().__init__(name, path)
        self._mutant = mutant

    def get_code(self, fullname: str):  # type: ignore[no-untyped-def]
        source = mutated(self._mutant, self.get_source(fullname) or "")
        return compile(source, self.path, "exec", dont_inherit=True)
