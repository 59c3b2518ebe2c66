"""Plays seeds, and tells what came of them."""

from __future__ import annotations

import multiprocessing
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager

from areal_plugins.testing.sim.schedule import days as long_run
from areal_plugins.testing.sim.schedule import draw
from areal_plugins.testing.sim.setting import Memory
from areal_plugins.testing.sim.world import Outcome, play

CHUNK = 10
"""Seeds that a process is given at once."""

ENOUGH = 10
"""Seeds that break an invariant before the rest is not played."""

GROWTH = 1.1
"""A long run's memory may be so many times what it was after its first tenth."""


def seeds(numbers: Iterable[int]) -> Iterator[Outcome]:
    """What became of each."""
    return (play(draw(number)) for number in numbers)


def report(outcome: Outcome) -> str:
    """A broken invariant for whoever has to find out why, with the line that replays it last."""
    broken = outcome.broken
    assert broken is not None
    lines = [
        *outcome.trace,
        "",
        f"seed {outcome.seed}, life {outcome.lives} ({', '.join(outcome.ends)}), {broken.at:.3f} s into it:",
        f"broken invariant {broken.invariant}: {broken.text}",
        f"tox run -e sim -- --seed {outcome.seed}",
    ]
    return "\n".join(lines)


def replay(seed: int, everything: bool = False) -> int:
    """Play one seed, and tell."""
    outcome = play(draw(seed), trace=None if everything else 60)
    if outcome.broken is not None:
        _say(report(outcome))
        return 1
    if everything:
        _say("\n".join(outcome.trace))
    _say(f"seed {seed}: {outcome.steps} steps in {outcome.lives} lives ({', '.join(outcome.ends)}),")
    _say(f"{outcome.seconds:.0f} s of virtual time, {outcome.events} events; every invariant held after each")
    return 0


def days(hours: float, seed: int) -> int:
    """One long run at the rates of faults that users report, and what it took."""
    began = time.monotonic()
    outcome = play(long_run(hours, seed))
    if outcome.broken is not None:
        _say("\n".join(outcome.trace))
        _say(f"broken invariant {outcome.broken.invariant}: {outcome.broken.text}")
        return 1
    seen, memory = outcome.seen, outcome.memory
    took = time.monotonic() - began
    hours, end = outcome.seconds / 3600, outcome.ends[-1]
    _say(f"{hours:.1f} hours of virtual time, {end} after {outcome.steps} steps; it took {took:.0f} s")
    for kind in ("worker-lost", "worker-restarted", "trainer-restarted", "group-retried", "group-failed", "skipped"):
        _say(f"{kind:>20} {seen[kind]}")
    _say("at most: " + ", ".join(f"{size} {what}" for what, size in sorted(outcome.most.items())))
    begun = len(memory) // 10  # what is loaded late, and what is kept up to a limit, is there by then
    for at in (memory[begun], memory[len(memory) // 2], memory[-1]):
        _say(f"{at.seconds / 3600:6.1f} h, step {at.step}: {at.mib} MiB, {at.objects} objects")
    steady = flat(memory[begun], memory[-1])
    _say("memory is flat" if steady else "memory is NOT flat")
    return 0 if outcome.ends == ("stopped",) and steady else 1


def flat(first: Memory, last: Memory) -> bool:
    """Whether nothing has grown but by what comes and goes."""
    return last.objects <= first.objects * GROWTH and last.mib <= first.mib * GROWTH


def many(first: int, count: int, jobs: int) -> int:
    """Play `count` seeds on `jobs` processes; stops when asked to, or once enough of them have broken an invariant."""
    began, done, events, lives, seconds = time.monotonic(), 0, 0, 0, 0.0
    broken: list[int] = []
    try:
        with _pool(jobs) as pool:
            for outcomes in pool.map(_chunk, range(first, first + count, CHUNK), [first + count] * count):
                for outcome in outcomes:
                    done, events, lives = done + 1, events + outcome.events, lives + outcome.lives
                    seconds += outcome.seconds
                    if outcome.broken is not None:
                        broken.append(outcome.seed)
                        _say(report(outcome))
                if len(broken) >= ENOUGH:
                    pool.shutdown(wait=False, cancel_futures=True)
                    break
                if done % 100 < CHUNK:
                    _say(_figures(done, count, lives, events, seconds, began, broken))
    except KeyboardInterrupt:
        _say(_figures(done, count, lives, events, seconds, began, broken))
        _say(f"stopped: go on with --first {first + done}")
        return 130
    _say(_figures(done, count, lives, events, seconds, began, broken))
    return 1 if broken else 0


def _figures(
    done: int, count: int, lives: int, events: int, seconds: float, began: float, broken: Sequence[int]
) -> str:
    took = time.monotonic() - began
    verdict = f"BROKEN by seeds {', '.join(map(str, broken))}" if broken else "every invariant held"
    return (
        f"{done} of {count} seeds, {lives} lives, {events} events, {seconds / 86400:.1f} days of virtual time:"
        f" {verdict} ({took:.0f} s, {took / max(1, done):.2f} s a seed)"
    )


@contextmanager
def _pool(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that leave Ctrl-C to this one."""
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, context, initializer=_ignore_interrupts)
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown(wait=True)


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _chunk(first: int, end: int) -> list[Outcome]:
    return list(seeds(range(first, min(first + CHUNK, end))))


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
