"""What a rollout worker offers: it plays the members of a group against an engine and has them judged."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from attrs import evolve, frozen

from areal_core.contexts import EnvironmentContext, ModelContext, RewardContext
from areal_core.data import Task, Trajectory, TrajectoryGroup
from areal_core.errors import ComponentError, InputError, WorkerLost
from areal_core.protocols import Environment, ModelSource, Peer, Tokenizer
from areal_core.workers.build import build, title
from areal_core.workers.faults import blamed, blaming
from areal_core.workers.guard import Guard
from areal_core.workers.lane import Lane
from areal_core.workers.link import Link
from areal_core.workers.plans import EnvironmentPlan, GroupOrder, GroupResult, Health, RolloutPlan
from areal_core.workers.requests import GroupRequests
from areal_core.workers.service import Dial
from areal_core.workers.session import Judge, Play, Prompts, RolloutSession, Transcript, sound

PATIENCE = 2.0
"""Seconds that an engine has to say what it has drawn so far."""


@frozen(eq=False)
class _Arena:
    """A live environment and its judge."""

    environment: Environment
    judge: Judge

    @property
    def title(self) -> str:
        return self.judge.environment


class RolloutService:
    """Environments and rewards, and links to the engines that orders name."""

    def __init__(self, dial: Dial, threaded: bool = True) -> None:
        self._engines = _Engines(dial)
        self._lane = Lane("rollout", threaded)
        self._owned = AsyncExitStack()
        self._arenas: dict[str, _Arena] = {}
        self._playing: dict[GroupRequests, GroupOrder] = {}
        self._tokenizer: Tokenizer | None = None
        self._nonce = secrets.token_hex(4)
        self._numbers = itertools.count()
        self._threaded = threaded
        self._guard: Guard | None = None

    async def setup(self, plan: RolloutPlan) -> None:
        """Build the tokenizer, the environments and the rewards; a further call replaces them all."""
        await self._free()
        self._tokenizer = await self._lane.call(title(plan.model.source), "load tokenizer", _tokenizer, plan)
        for entry in plan.environments:
            self._arenas[entry.name] = await self._arena(entry, plan)
        self._guard = Guard(self, plan.memory_limit, self._threaded)
        self._owned.callback(self._guard.close)
        self._lane.settle()

    async def size(self, environment: str, split: str) -> int | None:
        """How many tasks the split has; None when there is no end."""
        arena = self._find(environment)
        with blaming(arena.title, f"size of {split}"):
            return arena.environment.size(split)

    async def run_group(self, order: GroupOrder) -> GroupResult:
        """Play `order`. Cancelling it, or its time-out, ends its requests on the engine.

        Raises:
            ComponentError: the environment, the reward or the engine raised, broke its contract, or took
                longer than `order.timeout`; names it and the task.
            GenerationAborted: the engine was told to end one of the requests.
            WorkerLost, RemoteError: the engine is gone, or raised.

        """
        arena = self._find(order.task.environment)
        with blaming(arena.title, f"make {order.task}"):
            task = arena.environment.task(order.task.split, order.task.index)
        if order.mode == "demonstrate":
            return self._demonstrate(order, task)
        return await self._generate(order, task, arena)

    async def partial(self, sequences: list[int]) -> list[TrajectoryGroup]:
        """What was drawn so far of those of these groups that are played here.

        Nothing of one whose engine is silent, or whose members did not ask for the same at once.

        Raises:
            RemoteError: an engine raised.

        """
        wanted = set(sequences)
        playing = [(order, requests) for requests, order in self._playing.items() if order.sequence in wanted]
        told = await asyncio.gather(*(_partial(requests) for _, requests in playing))
        return [
            TrajectoryGroup(order.sequence, order.task, trajectories)
            for (order, _), trajectories in zip(playing, told, strict=True)
            if len(trajectories) == len(order.members)
        ]

    async def health(self) -> Health:
        """How it is, and what there is to say of it since the last time."""
        return Health() if self._guard is None else self._guard.report()

    async def close(self) -> None:
        """Close environments, rewards and links."""
        await self._free()
        await self._engines.close()
        self._lane.close()

    async def _generate(self, order: GroupOrder, task: Task, arena: _Arena) -> GroupResult:
        engine = await self._engines.link(order.engine)
        label = f"{order.task}/{self._nonce}.{next(self._numbers)}"
        play = Play(
            ref=order.task,
            task=task,
            prompts=Prompts(self._tokenizer, order.task),
            requests=GroupRequests(engine, label, order.seed, order.begun),
            sampling=order.sampling,
            judge=arena.judge,
            seed=order.seed,
        )
        sessions = [RolloutSession(play, member) for member in order.members]
        self._playing[play.requests] = order
        try:
            async with asyncio.timeout(order.timeout):
                ended = await _together(sessions, arena, play)
        except TimeoutError:
            raise ComponentError(arena.title, f"play {order.task}", _late(order, sessions)) from None
        except WorkerLost:
            self._engines.forget(order.engine, engine)
            raise
        finally:
            del self._playing[play.requests]
            await play.requests.close()
        trajectories = tuple(trajectory for trajectory, _ in ended)
        if not play.prompts.shared:
            trajectories = tuple(evolve(trajectory, prompt_length=0) for trajectory in trajectories)
        group = TrajectoryGroup(order.sequence, order.task, trajectories)
        return GroupResult(group, sum(seconds for _, seconds in ended))

    def _demonstrate(self, order: GroupOrder, task: Task) -> GroupResult:
        """The demonstration, ended as the model should end it, as if every member had said it; it counts as right."""
        if task.demonstration is None:
            way_out = "an objective that imitates needs an environment with demonstrations"
            raise InputError(f"task {order.task}", "has no demonstration", way_out)
        prompts = Prompts(self._tokenizer, order.task)
        said = Transcript(prompts.open(task.prompt))
        said.demonstrate(task.demonstration, prompts.answer(task.demonstration))
        columns = said.columns()
        trajectories = tuple(
            Trajectory(
                member=member,
                columns=columns,
                prompt_length=len(said.opening.tokens),
                reward=1.0,
                finish="stop",
                prompt=said.opening.text,
                answer=task.demonstration,
            )
            for member in order.members
        )
        return GroupResult(TrajectoryGroup(order.sequence, order.task, trajectories))

    async def _arena(self, entry: EnvironmentPlan, plan: RolloutPlan) -> _Arena:
        given = entry.reward
        context = EnvironmentContext(entry.name, plan.seed, title(given) if given else None, plan.blocking)
        environment = await self._build(entry.environment, context)
        judge = Judge(title(entry.environment))
        if given:
            reward = await self._build(given, RewardContext(entry.name, plan.blocking))
            judge = Judge(judge.environment, reward, title(given), entry.reward_timeout)
        return _Arena(environment, judge)

    async def _build(self, ref: Any, context: Any) -> Any:
        component = await self._lane.call(title(ref), "build", build, ref, context)
        if hasattr(component, "close"):
            self._owned.push_async_callback(component.close)
        return component

    async def _free(self) -> None:
        self._arenas.clear()
        await self._owned.aclose()

    def _find(self, environment: str) -> _Arena:
        if environment not in self._arenas:
            known = ", ".join(self._arenas) or "none, as the worker was not set up"
            raise ComponentError(
                f"environment {environment}", "find", f"no environment has this name (there are {known})"
            )
        return self._arenas[environment]


async def _together(sessions: Sequence[RolloutSession], arena: _Arena, play: Play) -> list[tuple[Trajectory, float]]:
    """Every member's rollout; the first that fails ends the others."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_play(session, arena, play)) for session in sessions]
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]


async def _play(session: RolloutSession, arena: _Arena, play: Play) -> tuple[Trajectory, float]:
    """One member's rollout, and the seconds from the model's last word to the verdict.

    A failure of the engine or the reward comes first, whatever the environment made of it.
    """
    try:
        trajectory = session.trajectory(sound(await arena.environment.run(play.task, session)))
    except asyncio.CancelledError:
        if _asked_to_end():
            raise
        cause = "it cancelled its own rollout"
        raise ComponentError(arena.title, f"play {play.ref}, member {session.member}", cause) from None
    except BaseException as error:
        if session.failure is None:
            raise blamed(error, arena.title, f"play {play.ref}, member {session.member}") from error
    if session.failure is not None:
        raise session.failure
    session.doing = ""
    return trajectory, asyncio.get_running_loop().time() - session.replied


async def _partial(requests: GroupRequests) -> tuple[Trajectory, ...]:
    try:
        async with asyncio.timeout(PATIENCE):
            return await requests.partial()
    except (TimeoutError, WorkerLost):
        return ()


def _asked_to_end() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _late(order: GroupOrder, sessions: Iterable[RolloutSession]) -> str:
    """What the members of a group that ran out of time were waiting for."""
    waiting = defaultdict(list)
    for session in sessions:
        if session.doing:
            waiting[session.doing].append(str(session.member))
    held = "; ".join(f"{what} held member {', '.join(members)}" for what, members in waiting.items())
    return f"not done after {order.timeout:g} s: {held}"


def _tokenizer(plan: RolloutPlan) -> Tokenizer | None:
    model = plan.model
    context = ModelContext(cache=Path(model.cache), work=Path(model.work), seed=model.seed)
    source: ModelSource = build(model.source, context)
    return source.tokenizer(Path(plan.directory))


class _Engines:
    """Links to engines, one an address; a link that breaks is dialled again by the next who needs it."""

    def __init__(self, dial: Dial) -> None:
        self._dial = dial
        self._links: dict[str, Peer] = {}
        self._dialling: dict[str, asyncio.Task[Peer]] = {}

    async def link(self, address: str) -> Peer:
        """The link to the engine at `address`; raises `WorkerLost` where nobody answers."""
        if address in self._links:
            return self._links[address]
        if address not in self._dialling:
            self._dialling[address] = asyncio.create_task(self._open(address))
        return await asyncio.shield(self._dialling[address])

    def forget(self, address: str, link: Peer) -> None:
        """`link` is broken."""
        if self._links.get(address) is link:
            del self._links[address]

    async def close(self) -> None:
        """End all links."""
        for task in self._dialling.values():
            task.cancel()
        for link in self._links.values():
            await link.close()
        self._links.clear()

    async def _open(self, address: str) -> Peer:
        try:
            link = self._links[address] = await self._dial(address)
            if isinstance(link, Link):  # one that breaks while no group uses it is noticed by nobody else
                link.gone.add_done_callback(lambda _: self.forget(address, link))
            return link
        finally:
            del self._dialling[address]
