"""An engine as a discrete-event simulation: an event whenever its batch changes, not one a token.

All running sequences draw one token a step, so that the number of steps is the one clock they share, and
the time of any number of steps has a closed form (see `EngineCosts`). A thousand engines cost no more than
the answers they give.
"""

from __future__ import annotations

import math
from asyncio import AbstractEventLoop, Future, TimerHandle
from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush

from attrs import define, field

from areal_plugins.simulate.costs import EngineCosts

Ended = Callable[["Sequence"], None]
"""Called, on the loop, when a sequence has all its tokens."""


@define(eq=False)
class Sequence:
    """An answer of `length` tokens to a prompt of `prompt`, under way: who drew how many of them when.

    `shared`: its prompt is read once, with the one before it. `stretches` are tokens and the version's code.
    """

    prompt: int
    length: int
    ended: Ended
    shared: bool = False
    drawn: int = 0
    stretches: list[tuple[int, int]] = field(factory=list)
    joined: int = 0
    version: int = 0
    dropped: bool = False

    @property
    def context(self) -> int:
        """Tokens it has in the cache when it joins the batch."""
        return self.prompt + self.drawn


class SimulatedEngine:
    """Continuous batching: up to `max_concurrent` sequences, as long as their tokens fit in the cache.

    First come, first served. A cache that runs full sends the sequence that joined last back to the queue.
    Where running sequences are to end before new weights, so are those that wait if it `flushes`.
    """

    def __init__(self, costs: EngineCosts, max_concurrent: int, loop: AbstractEventLoop, flushes: bool = False) -> None:
        self._costs, self._most, self._loop, self._flushes = costs, max_concurrent, loop, flushes
        self._slope, self._capacity = costs.slope, costs.capacity
        self._waiting: deque[Sequence] = deque()
        self._running: list[tuple[int, int, Sequence]] = []
        self._joined = 0
        self._steps = self._context = 0
        self._steps_of: dict[int, float] = {}
        self._each = self._at = 0.0
        self._timer: TimerHandle | None = None
        self._woken = False
        self._paused = False
        self._stale = False
        self._empty: Future[None] | None = None
        self.version = 0
        self.tokens = 0
        self.busy = 0.0
        self.prefilled = 0
        self.retracted = 0

    @property
    def running(self) -> int:
        """Sequences in the batch."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Sequences that have no place in it yet."""
        return len(self._waiting)

    def submit(self, sequence: Sequence) -> None:
        """Queue a sequence; all that come at one moment join together."""
        self._waiting.append(sequence)
        self._wake()

    def drop(self, sequences: list[Sequence]) -> None:
        """Forget those of them that have not ended."""
        for sequence in sequences:
            sequence.dropped = True
        self._advance()
        kept = [entry for entry in self._running if not entry[2].dropped]
        self._context -= sum(self._held(entry[2]) for entry in self._running if entry[2].dropped)
        self._running[:] = kept
        heapify(self._running)
        self._waiting = deque(sequence for sequence in self._waiting if not sequence.dropped)
        self._wake()

    async def pause(self, keep: bool) -> None:
        """Draw nothing more; without `keep` only once all that is to end before has ended."""
        self._advance()
        self._paused = True
        if not keep and (self._running or (self._flushes and self._waiting)):
            self._empty = self._loop.create_future()
            await self._empty
        self._stop_timer()

    def load(self, version: int) -> None:
        """Serve `version`: what was kept is older, and its cache is of no use any more."""
        for _, _, sequence in self._running:
            self._close(sequence)
            sequence.joined, sequence.version = self._steps, version
        self.version, self._stale = version, True

    def resume(self) -> None:
        """Go on. Sequences that were kept under older weights are read anew first."""
        self._paused = False
        self._at = max(self._at, self._loop.time())
        if self._stale:
            for _, _, sequence in self._running:
                self._read(self._held(sequence))
        self._stale = False
        self._wake()

    # --- time -----------------------------------------------------------------------------------------

    def _wake(self) -> None:
        """Look at the batch anew, once everything of this moment has happened."""
        if not self._woken:
            self._woken = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._woken = False
        self._advance()
        self._go_on()

    def _go_on(self) -> None:
        """Fill the batch, or see that an update need not wait any more."""
        self._admit()
        if self._empty is not None and not self._running and not self._empty.done():
            self._empty.set_result(None)
            self._empty = None
        self._plan()

    def _advance(self) -> None:
        """Draw the tokens of all steps that are done by now."""
        passed = self._loop.time() - self._at
        if self._running and passed > 0 and not (self._paused and self._empty is None):
            self._draw(min(self._within(passed), self._until_change()))

    def _within(self, seconds: float) -> int:
        """Whole steps in so many seconds: the root of `k each + slope (k context + n k (k - 1) / 2) = seconds`."""
        curve = self._slope * len(self._running) / 2
        linear = self._each + self._slope * self._context - curve
        root = 2 * seconds / (linear + math.sqrt(linear**2 + 4 * curve * seconds))
        return int(root + 1e-6)  # what rounding of the clock took from a whole step

    def _seconds(self, steps: int) -> float:
        grown = self._context + len(self._running) * (steps - 1) / 2
        return steps * (self._each + self._slope * grown)

    def _draw(self, steps: int) -> None:
        if steps <= 0:
            return
        seconds = self._seconds(steps)
        self._at += seconds
        self.busy += seconds
        self._steps += steps
        drawn = steps * len(self._running)
        self._context += drawn
        self.tokens += drawn

    def _until_change(self) -> int:
        """Steps until a sequence ends or the cache is full."""
        room = (self._capacity - self._context) // len(self._running)
        return min(self._running[0][0] - self._steps, max(room, 1))

    def _plan(self) -> None:
        """Come back when the batch changes next."""
        self._stop_timer()
        if self._running and (not self._paused or self._empty is not None):
            steps = self._until_change()
            self._timer = self._loop.call_at(self._at + self._seconds(steps), self._change, self._steps + steps)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # --- the batch ------------------------------------------------------------------------------------

    def _change(self, steps: int) -> None:
        """So many steps are done in all; some of them may have been drawn already."""
        self._timer = None
        self._draw(steps - self._steps)
        while self._running and self._running[0][0] <= self._steps:
            self._end(heappop(self._running)[2])
        while len(self._running) > 1 and self._context + len(self._running) > self._capacity:
            self._retract()
        self._go_on()

    def _end(self, sequence: Sequence) -> None:
        self._context -= sequence.prompt + sequence.length
        self._close(sequence)
        sequence.ended(sequence)

    def _retract(self) -> None:
        """Send the youngest back: it is drawn on later, after its tokens were read again."""
        entry = max(self._running, key=lambda entry: entry[1])
        self._running.remove(entry)
        heapify(self._running)
        sequence = entry[2]
        self._context -= self._held(sequence)
        self._close(sequence)
        sequence.shared = False
        self._waiting.appendleft(sequence)
        self.retracted += 1

    def _admit(self) -> None:
        if self._waiting and (not self._paused or (self._flushes and self._empty is not None)):
            self._fill()
        n = len(self._running)
        if n not in self._steps_of:
            self._steps_of[n] = self._costs.step(n)
        self._each = self._steps_of[n]

    def _fill(self) -> None:
        if not self._running:
            self._at = max(self._at, self._loop.time())
        while self._waiting and len(self._running) < self._most and self._fits(self._waiting[0]):
            self._join(self._waiting.popleft())

    def _fits(self, sequence: Sequence) -> bool:
        """Whether the cache has room for it, and for a few more tokens of everyone."""
        after = self._context + sequence.context + _AHEAD * (len(self._running) + 1)
        return after <= self._capacity or not self._running

    def _join(self, sequence: Sequence) -> None:
        if not sequence.shared:
            self._read(sequence.context)
        sequence.joined, sequence.version = self._steps, self.version
        self._joined += 1
        self._context += sequence.context
        ends = self._steps + sequence.length - sequence.drawn
        heappush(self._running, (ends, self._joined, sequence))

    def _read(self, tokens: int) -> None:
        """Reading a prompt holds the batch up."""
        seconds = self._costs.prefill(tokens)
        self._at += seconds
        self.busy += seconds
        self.prefilled += tokens

    def _held(self, sequence: Sequence) -> int:
        return sequence.context + self._steps - sequence.joined

    def _close(self, sequence: Sequence) -> None:
        """Note what it drew since it joined, or since the weights changed."""
        drawn = self._steps - sequence.joined
        if drawn:
            sequence.stretches.append((drawn, sequence.version))
            sequence.drawn += drawn
            sequence.joined = self._steps


_AHEAD = 64
"""Tokens that every sequence is given room for when one more joins, so that few are sent back."""
