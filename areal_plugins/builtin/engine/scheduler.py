"""Which completions run: admission in order of arrival, rows, shared prompts, ends.

Every running completion has a row. Rows 0..count-1 are taken, without holes while a step computes.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import numpy as np
from attrs import evolve

from areal_core.data import Completion, Finish
from areal_plugins.builtin.engine.attention import Chunk
from areal_plugins.builtin.engine.groups import Group, Member
from areal_plugins.builtin.engine.kv_cache import KVCache
from areal_plugins.builtin.engine.plan import Plan, Planner
from areal_plugins.builtin.engine.rows import Rows
from areal_plugins.builtin.engine.sampling import Draws, uniforms

_GRANULE = 64
"""Lengths of the cache are multiples of this many tokens, so that it rarely grows."""


class Scheduler:
    """Admits, plans and ends. `kv_tokens` bounds rows x length of the cache; `text` decodes an answer."""

    def __init__(
        self,
        cache: KVCache,
        max_rows: int,
        kv_tokens: int,
        prefill_tokens: int,
        text: Callable[[Sequence[int]], str],
    ) -> None:
        self.rows = Rows(max_rows)
        self.count = 0
        self.admitting = True
        self.widest = max_rows
        """Rows that may be taken from now on; at first all there are."""
        self._cache, self._kv_tokens, self._text = cache, kv_tokens, text
        self._planner = Planner(prefill_tokens)
        self._queue: deque[Group] = deque()
        self._members: list[Member | None] = [None] * max_rows
        self._holes: dict[int, Member] = {}
        self._order = itertools.count()
        self._epoch = 0

    @property
    def running(self) -> int:
        """Completions that have a row."""
        return self.count - len(self._holes)

    @property
    def waiting(self) -> int:
        """Completions that wait for a row."""
        return sum(len(group.waiting) for group in self._queue)

    def submit(self, group: Group) -> None:
        """Let its members wait for rows. What was begun and is whole, or has no room left, is delivered at once."""
        for index in range(group.request.n):
            begun = group.begun(index)
            if begun.finish != "abort":
                group.deliver(begun)
            elif len(group.prompt) + len(begun.tokens) >= group.limit:
                group.deliver(evolve(begun, finish="length", text=self._text(begun.tokens.tolist())))
            else:
                group.waiting.append(index)
        self._queue.append(group)

    def partial(self, request: str) -> Iterable[Completion]:
        """What was drawn so far of a request's members that have not ended."""
        for member in self._running():
            if member.group.request.id == request:
                yield Completion(member.index, *self.rows.answer(member.row), "abort")
        for group in self._queue:
            if group.request.id == request:
                yield from map(group.begun, group.waiting)

    def plan(self) -> Plan | None:
        """Admit what fits, close the holes, and say what the next step computes."""
        self._admit_waiting()
        if self._holes:
            self._close_holes()
            self._admit_waiting()  # holes take room in the cache, too
        return self._planner.plan(self.rows, self.count, self._sharers(), self._cache.layer_bytes)

    # --- admission ---------------------------------------------------------------------------------

    def _admit_waiting(self) -> None:
        while self.admitting and self._queue:
            rows = self._free_rows(self._queue[0])
            self._admit(self._queue[0], rows)
            if self._queue[0].waiting:
                return
            self._queue.popleft()

    def _free_rows(self, group: Group) -> list[int]:
        """Rows for the group's next members, as many as there is room for: holes first, its own before others."""
        longest = max(group.limit, int(self.rows.state["limit"][: self.count].max(initial=0)))
        bound = min(self.widest, self._kv_tokens // longest)
        if bound < self.count:
            return []
        holes = sorted(self._holes, key=lambda row: (self._holes[row].group is not group, row))
        rows = [*holes, *range(self.count, bound)][: len(group.waiting)]
        if rows:
            self._make_room(max(self.count, *(row + 1 for row in rows)), longest)
        return rows

    def _admit(self, group: Group, rows: list[int]) -> None:
        """Give the group's next members the `rows`."""
        if not rows:
            return
        source = self._prompt_row(group)
        members = [Member(group, group.waiting.popleft(), row, self._epoch, group.watch()) for row in rows]
        for member in members:
            self._holes.pop(member.row, None)
            self._members[member.row] = member
        self.count = max(self.count, *(row + 1 for row in rows))
        self._write_rows(members)
        if group.request.begun:
            for member in members:
                self._go_on(member)
        self._share_prompt(members, source)
        group.running += members

    def _make_room(self, rows: int, longest: int) -> None:
        """Let the cache hold so many rows of so many tokens."""
        self.rows.reserve(longest)
        if rows > self._cache.rows or longest > self._cache.length:
            self._cache.resize(*self._size(rows, longest))

    def _size(self, rows: int, longest: int) -> tuple[int, int]:
        """Rows and length that the cache grows to: room for all that waits, as far as the bound allows."""
        cache, waiting = self._cache, [group.limit for group in self._queue]
        generous = max(longest, cache.length, *waiting)
        lengths = (-(-generous // _GRANULE) * _GRANULE, -(-longest // _GRANULE) * _GRANULE, longest)
        length = next(length for length in lengths if rows * length <= self._kv_tokens)
        wanted = min(max(self.count + self.waiting, cache.rows), self.widest)
        return max(rows, min(wanted, self._kv_tokens // length)), length

    def _write_rows(self, members: Sequence[Member]) -> None:
        group, sampling = members[0].group, members[0].group.request.sampling
        columns = {
            "total": len(group.prompt),
            "cached": 0,
            "prompt": len(group.prompt),
            "limit": group.limit,
            "floor": len(group.prompt) + sampling.min_new_tokens,
            "follows": False,
            "watched": bool(sampling.stop),
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
            "key": group.keys[[member.index for member in members]],
            "order": [next(self._order) for _ in members],
        }
        self.rows.write([member.row for member in members], columns, group.prompt, group.stop_ids)

    def _go_on(self, member: Member) -> None:
        """Take up what was drawn of it before."""
        begun = member.group.begun(member.index)
        self.rows.go_on(member.row, begun.tokens, begun.logprobs, begun.versions)
        if member.watch is not None:
            for token in begun.tokens.tolist():
                member.watch.complete(token)

    def _close_holes(self) -> None:
        """Move the last rows into the rows that were left, so that attention reads one block."""
        last, self.count = self.count, self.count - len(self._holes)
        targets = [row for row in self._holes if row < self.count]
        sources = [row for row in range(self.count, last) if row not in self._holes]
        self._holes.clear()
        if not sources:
            return
        self._cache.copy(sources, targets, int(self.rows.state["cached"][sources].max()))
        self.rows.move(sources, targets)
        for source, target in zip(sources, targets, strict=True):
            member = self._member(source)
            self._members[target], self._members[source] = member, None
            member.row = target

    # --- shared prompts ----------------------------------------------------------------------------

    def _prompt_row(self, group: Group) -> int | None:
        """A row whose cache holds the group's prompt under the current weights: just left, or running."""
        cached, prompt = self.rows.state["cached"], len(group.prompt)
        left = [m for m in self._holes.values() if m.group is group]
        owners = left if group.followers else [*left, *group.running]
        fresh = (m.row for m in owners if m.epoch == self._epoch and cached[m.row] >= prompt - 1)
        return next(fresh, None)

    def _share_prompt(self, members: Sequence[Member], source: int | None) -> None:
        """Take the prompt's cache from `source`, or wait for the member that computes it, or compute it.

        The last token of the prompt is left to compute: its logits are what the members draw from.
        """
        state, group, shared = self.rows.state, members[0].group, len(members[0].group.prompt) - 1
        if shared == 0:
            return
        if source is not None:
            targets = [m.row for m in members if m.row != source]
            if targets:
                self._cache.copy([source] * len(targets), targets, shared)
            state["cached"][[m.row for m in members]] = shared
            return
        led = any(m.epoch == self._epoch for m in group.running)
        followers = members if led else members[1:]
        state["follows"][[m.row for m in followers]] = True
        group.followers += followers

    def _sharers(self) -> Mapping[int, Sequence[int]]:
        """The rows that wait for the prompt of the row that computes it."""
        if not self.rows.state["follows"][: self.count].any():
            return {}
        follows = self.rows.state["follows"]
        leaders = [m for m in self._running() if m.group.followers and not follows[m.row]]
        return {leader.row: [f.row for f in leader.group.followers] for leader in leaders}

    def _release(self, leaders: Sequence[Member]) -> None:
        """Their prompts are computed, but for the last token perhaps: give them to those who waited for them."""
        state = self.rows.state
        pairs = [(leader, follower) for leader in leaders for follower in leader.group.followers]
        if not pairs:
            return
        sources, rows = ([member.row for member in side] for side in zip(*pairs, strict=True))
        ready = np.minimum(state["prompt"][sources], state["cached"][sources])
        self._cache.copy(sources, rows, int(ready.max()))
        state["follows"][rows] = False
        state["cached"][rows] = np.minimum(ready, state["total"][rows] - 1)
        for leader in leaders:
            leader.group.followers.clear()

    def new_weights(self, *, recompute: bool) -> None:
        """The weights have changed: prompts computed before are not shared any more.

        `recompute`: what the cache holds of running completions is computed anew, too.
        """
        self._epoch += 1
        self._close_holes()
        if recompute:
            for group in {id(m.group): m.group for m in self._running()}.values():
                self._recompute(group)

    def _recompute(self, group: Group) -> None:
        _, *others = group.running
        self.rows.state["cached"][[m.row for m in group.running]] = 0
        for member in group.running:
            member.epoch = self._epoch
        if len(group.prompt) > 1:
            group.followers = others
            self.rows.state["follows"][[m.row for m in others]] = True

    # --- a step's outcome --------------------------------------------------------------------------

    def draws(self, plan: Plan) -> Draws:
        state, rows = self.rows.state, plan.sampled
        drawn = state["total"][rows] - state["prompt"][rows]
        uniform = uniforms(state["key"][rows], drawn)
        return Draws(state["temperature"][rows], state["top_p"][rows], state["top_k"][rows], uniform)

    def too_early(self, plan: Plan) -> Iterable[tuple[int, np.ndarray]]:
        """Which draws of the plan must not end their answer yet, and the tokens that would."""
        state = self.rows.state
        early = state["total"][plan.sampled] < state["floor"][plan.sampled]
        for draw in early.nonzero()[0]:
            ids = self.rows.stops[plan.sampled[draw]]
            yield int(draw), ids[ids >= 0]

    def record(self, plan: Plan, tokens: np.ndarray, logprobs: np.ndarray, version: int) -> None:
        """Append what was drawn under `version`, and end what is complete."""
        self._computed(plan.chunks)
        self.rows.append(plan.sampled, tokens, logprobs, version)
        state, rows = self.rows.state, plan.sampled
        stopped = (self.rows.stops[rows] == tokens[:, None]).any(axis=1)
        full = state["total"][rows] >= state["limit"][rows]
        for i in state["watched"][rows].nonzero()[0]:
            stopped[i] |= self._hit(self._member(rows[i]), int(tokens[i]))
        for i in (stopped | full).nonzero()[0]:
            self._end(self._member(rows[i]), "stop" if stopped[i] else "length")

    def _computed(self, chunks: Sequence[Chunk]) -> None:
        """The chunks are in the cache."""
        state = self.rows.state
        for chunk in chunks:
            state["cached"][chunk.row] += chunk.size
        ready = [chunk.row for chunk in chunks if state["cached"][chunk.row] >= state["prompt"][chunk.row] - 1]
        self._release([self._member(row) for row in ready])

    def _hit(self, member: Member, token: int) -> bool:
        """Whether a stop string is complete with `token`, and may end the answer."""
        assert member.watch is not None
        total, floor = (int(self.rows.state[name][member.row]) for name in ("total", "floor"))
        return member.watch.complete(token) and total >= floor

    def _end(self, member: Member, finish: Finish) -> None:
        group, tokens, logprobs, versions = member.group, *self.rows.answer(member.row)
        self._members[member.row] = None
        self._holes[member.row] = member
        self.rows.state["limit"][member.row] = 0
        group.running.remove(member)
        ids = tokens.tolist()
        by_token = finish == "stop" and ids[-1] in group.stop_ids
        text = self._text(ids[:-1] if by_token else ids)
        if finish == "stop" and not by_token and member.watch is not None:
            text = text[: member.watch.end]
        group.deliver(Completion(member.index, tokens, logprobs, versions, finish, text))

    def abort(self, ids: Collection[str] | None = None) -> None:
        """End the requests `ids` (all for None) with what they have."""
        groups = {id(g): g for g in [*(m.group for m in self._running()), *self._queue]}.values()
        for group in groups:
            if ids is None or group.request.id in ids:
                self._abort(group)
        self._queue = deque(g for g in self._queue if g.waiting)

    def _abort(self, group: Group) -> None:
        group.followers.clear()
        for member in tuple(group.running):
            self._end(member, "abort")
        for index in group.waiting:
            group.deliver(group.begun(index))
        group.waiting.clear()

    def clear(self) -> None:
        """Drop everything, without a word to anyone."""
        self._members = [None] * len(self._members)
        self._queue.clear()
        self._holes.clear()
        self.count = 0

    def _running(self) -> list[Member]:
        return [m for m in self._members[: self.count] if m is not None]

    def _member(self, row: int) -> Member:
        member = self._members[row]
        assert member is not None
        return member
