"""What an environment must keep."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable, Sequence
from typing import ClassVar

import pytest

from areal_core.contexts import EnvironmentContext
from areal_core.data import Message, Task
from areal_core.protocols import Environment
from areal_core.workers.message import Kind, Packer, Unpacker
from areal_core.workers.session import sound
from areal_plugins.testing.conformance import elsewhere
from areal_plugins.testing.conformance.base import Conformance, Subject
from areal_plugins.testing.conformance.leftovers import close, opened, patiently, running, turns
from areal_plugins.testing.conformance.playing import Episode, Say, ScriptedSession, answer_right

Place = tuple[str, int]
"""A split, and an index in it."""


class EnvironmentConformance(Conformance):
    """Rules for sources of tasks, played with a model that says what the fixture `say` tells it to.

    `most` tasks of each declared split are looked at. `patience`: seconds that any one rule may take.
    An environment whose default options point to no data needs a `Case` with options that do.
    """

    kind: ClassVar[str] = "environment"
    most: ClassVar[int] = 8
    patience: ClassVar[float] = 60.0

    @pytest.fixture
    def context(self, subject: Subject) -> EnvironmentContext:
        """With a reward where the environment does not judge its own tasks."""
        reward = None if subject.descriptor.capabilities.scores else "reward/scripted"
        return EnvironmentContext("conformance", seed=3, reward=reward)

    @pytest.fixture
    def say(self) -> Say:
        """What the model says to a task in its n-th turn; by default the demonstration, or the right answer."""
        return answer_right

    @pytest.fixture
    def make(self, subject: Subject, context: EnvironmentContext) -> Callable[[], Environment]:
        """Builds the environment anew."""
        return lambda: subject.build(context)

    @pytest.fixture
    def places(self, subject: Subject, make: Callable[[], Environment]) -> list[Place]:
        """Some tasks of every declared split."""

        async def find() -> list[Place]:
            async with opened(make) as environment:
                splits = subject.descriptor.capabilities.splits
                return [place for split in splits for place in self._some(environment, split)]

        return asyncio.run(find())

    # --- tasks -------------------------------------------------------------------------------------

    def test_sizes_are_counts(self, subject: Subject, make: Callable[[], Environment]) -> None:
        """Each declared split has a number of tasks, or no end (None), and one of them has a task."""
        splits = subject.descriptor.capabilities.splits
        sizes = self._sizes(make, splits)
        wrong = {split: size for split, size in sizes.items() if not _is_size(size)}
        assert not wrong, f"sizes that are no count of tasks: {wrong}"
        assert any(size != 0 for size in sizes.values()), f"none of the splits {', '.join(splits)} has a task"

    def test_an_unknown_split_has_no_tasks(self, make: Callable[[], Environment]) -> None:
        """The size of a split that does not exist is 0."""
        size = self._sizes(make, ["no-such-split"])["no-such-split"]
        assert size == 0, f"its size is {size!r}"

    def test_a_size_is_honest(self, subject: Subject, make: Callable[[], Environment]) -> None:
        """The last task of a split is there."""
        with_tasks = {s: n for s, n in self._sizes(make, subject.descriptor.capabilities.splits).items() if n}
        for split, size in with_tasks.items():
            problem = self._problem(make, split, size - 1)
            assert problem is None, f"{split} has {size} tasks, but task {size - 1} raises {problem!r}"

    def test_there_is_nothing_beyond_the_size(self, subject: Subject, make: Callable[[], Environment]) -> None:
        """A task beyond the size raises `IndexError`."""
        for split, size in self._sizes(make, subject.descriptor.capabilities.splits).items():
            if size is None:
                continue
            for index in (size, size + 1000):
                problem = self._problem(make, split, index)
                assert isinstance(problem, IndexError), f"task {index} of the {size} of {split}: {problem!r}"

    def test_tasks_can_be_asked(self, make: Callable[[], Environment], places: list[Place]) -> None:
        """A task is a `Task` whose prompt is text, or messages, and not empty."""
        for place, task in zip(places, self._tasks(make, places), strict=True):
            assert isinstance(task, Task), f"{place} is a {type(task).__name__}"
            assert _can_be_asked(task), f"the prompt of {place} is {task.prompt!r}"

    def test_a_task_is_the_same_whenever_it_is_asked_for(
        self, make: Callable[[], Environment], places: list[Place]
    ) -> None:
        """A task depends on its split and index alone: not on what was asked for before."""
        forwards = self._tasks(make, places)
        twice = self._tasks(make, [*places, *reversed(places)])
        assert twice[: len(places)] == forwards, "an environment that is built again has other tasks"
        assert twice[len(places) :][::-1] == forwards, "a task is another when it is asked for again"

    def test_a_task_is_the_same_in_another_process(
        self, subject: Subject, context: EnvironmentContext, make: Callable[[], Environment], places: list[Place]
    ) -> None:
        """Workers agree on every task, whatever their hash seed."""
        there = elsewhere.ask(subject, context, tasks_of, places)
        for place, mine, other in zip(places, self._tasks(make, places), there, strict=True):
            assert mine == other, f"{place} is {mine} here and {other} there"

    def test_tasks_cross_to_another_process(self, make: Callable[[], Environment], places: list[Place]) -> None:
        """A task can be pickled, and sent as workers send: its metadata is plain data."""
        for task in self._tasks(make, places):
            assert pickle.loads(pickle.dumps(task)) == task, "a task is another once it was pickled"  # noqa: S301
            sent = _sent(task)
            assert sent == task, f"{task} is {sent} once it was sent: metadata must be texts, numbers, lists and dicts"

    def test_demonstrations_are_there(
        self, subject: Subject, make: Callable[[], Environment], places: list[Place]
    ) -> None:
        """Where demonstrations are declared, each task to train on has one."""
        if not subject.descriptor.capabilities.demonstrations:
            pytest.skip("it declares no demonstrations")
        shown = [place for place in places if place[0] == subject.descriptor.capabilities.splits[0]]
        for place, task in zip(shown, self._tasks(make, shown), strict=True):
            assert isinstance(task.demonstration, str), f"{place} has no demonstration"

    # --- episodes ----------------------------------------------------------------------------------

    def test_an_episode_ends_in_a_finite_score(
        self, make: Callable[[], Environment], say: Say, places: list[Place]
    ) -> None:
        """An episode asks the model, and ends in a `Score` of finite numbers."""
        for place in places:
            episode = self._alone(make, say, place)
            assert "model" in {who for who, _ in episode.said}, f"{place} never asks the model"
            sound(episode.verdict)

    def test_the_same_replies_give_the_same_episode(
        self, make: Callable[[], Environment], say: Say, places: list[Place]
    ) -> None:
        """An episode depends on the task, the session's seed and the model's replies alone."""
        for place in places:
            first, second = (self._alone(make, say, place) for _ in range(2))
            assert first == second, f"{place} went {first} and then {second}"

    def test_episodes_do_not_disturb_each_other(
        self, make: Callable[[], Environment], say: Say, places: list[Place]
    ) -> None:
        """Many episodes at once, of one task and of several, go as each goes alone."""

        async def play() -> list[Episode]:
            async with opened(make) as environment:
                plays = [self._play(environment, say, place, member) for place in places for member in range(3)]
                return await patiently(asyncio.gather(*plays), self.patience)

        together = asyncio.run(play())
        alone = [self._alone(make, say, place, member) for place in places for member in range(3)]
        assert together == alone, "episodes that are played side by side go otherwise than alone"

    def test_an_episode_can_be_cancelled(self, make: Callable[[], Environment], say: Say, places: list[Place]) -> None:
        """A cancelled episode ends, and leaves nothing that still runs; the environment plays on."""

        async def cancel() -> None:
            async with opened(make) as environment:
                await patiently(self._play(environment, say, places[0]), self.patience)
                before = running()
                task = environment.task(*places[0])
                session = ScriptedSession(task, say, self._judged, silent=True)
                episode = asyncio.ensure_future(environment.run(task, session))
                await turns()
                episode.cancel()
                await asyncio.wait({episode}, timeout=self.patience)
                assert episode.done(), f"it goes on {self.patience:g} s after it was cancelled"
                assert episode.cancelled(), "it ends as if nothing had happened when it is cancelled"
                await turns()
                assert not running() - before, f"it leaves {', '.join(sorted(running() - before))}"
                await patiently(self._play(environment, say, places[0]), self.patience)

        asyncio.run(cancel())

    def test_closing_leaves_nothing(self, make: Callable[[], Environment], say: Say, places: list[Place]) -> None:
        """After `close`, where there is one, nothing runs that did not run before."""

        async def leave() -> set[str]:
            before = running()
            environment = make()
            await patiently(self._play(environment, say, places[0]), self.patience)
            await close(environment)
            await turns()
            return running() - before

        left = asyncio.run(leave())
        assert not left, f"it leaves {', '.join(sorted(left))}"

    # --- how ---------------------------------------------------------------------------------------

    def _some(self, environment: Environment, split: str) -> list[Place]:
        size = environment.size(split)
        count = self.most if size is None else min(self.most, size)
        return [(split, index) for index in range(count)]

    def _sizes(self, make: Callable[[], Environment], splits: Sequence[str]) -> dict[str, int | None]:
        async def ask() -> dict[str, int | None]:
            async with opened(make) as environment:
                return {split: environment.size(split) for split in splits}

        return asyncio.run(ask())

    def _tasks(self, make: Callable[[], Environment], places: list[Place]) -> list[Task]:
        return asyncio.run(_ask(make, places))

    def _problem(self, make: Callable[[], Environment], split: str, index: int) -> Exception | None:
        """What making the task raises."""
        try:
            self._tasks(make, [(split, index)])
        except Exception as error:  # whatever it is, it is looked at
            return error
        return None

    @pytest.fixture(autouse=True)
    def _know_the_judge(self, context: EnvironmentContext) -> None:
        self._judged = context.reward is not None

    async def _play(self, environment: Environment, say: Say, place: Place, member: int = 0) -> Episode:
        task = environment.task(*place)
        session = ScriptedSession(task, say, self._judged, member)
        return session.episode(await environment.run(task, session))

    def _alone(self, make: Callable[[], Environment], say: Say, place: Place, member: int = 0) -> Episode:
        async def play() -> Episode:
            async with opened(make) as environment:
                return await patiently(self._play(environment, say, place, member), self.patience)

        return asyncio.run(play())


def tasks_of(environment: Environment, places: list[Place]) -> list[Task]:
    """The tasks, asked for in another process."""

    async def ask() -> list[Task]:
        async with opened(lambda: environment):
            return [environment.task(*place) for place in places]

    return asyncio.run(ask())


async def _ask(make: Callable[[], Environment], places: list[Place]) -> list[Task]:
    async with opened(make) as environment:
        return [environment.task(*place) for place in places]


def _is_size(size: int | None) -> bool:
    return size is None or (type(size) is int and size >= 0)


def _can_be_asked(task: Task) -> bool:
    prompt = task.prompt
    if isinstance(prompt, str):
        return bool(prompt)
    return isinstance(prompt, tuple) and bool(prompt) and all(isinstance(turn, Message) for turn in prompt)


def _sent(task: Task) -> Task:
    head, parts, _ = Packer().pack(Kind.CALL, 1, "task", task)
    unpacker = Unpacker()
    arrived: Task = unpacker.payload(unpacker.message(memoryview(head)), Task, memoryview(b"".join(map(bytes, parts))))
    return arrived
