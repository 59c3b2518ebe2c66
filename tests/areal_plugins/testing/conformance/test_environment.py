"""Environments that keep the rules, and for each rule one that breaks it alone."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
from pathlib import Path

import pytest

from areal_core.data import Score, Task
from areal_plugins import EnvironmentCapabilities, EnvironmentDescriptor, hookimpl
from areal_plugins.testing import mocks
from areal_plugins.testing.conformance import Case, EnvironmentConformance
from areal_plugins.testing.conformance.running import run

RECORDS = [
    {"prompt": f"{i} and {i}?", "answer": str(2 * i), "demonstration": f"it is {2 * i}", "question": f"{i} and {i}?"}
    for i in range(12)
]


@pytest.fixture
def records(tmp_path) -> Path:
    path = tmp_path / "tasks.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    return path


class TestJsonl(EnvironmentConformance):
    @pytest.fixture
    def component(self, records):
        fields = {"demonstration": "demonstration"}
        return Case("environment/jsonl", {"path": str(records), "test_fraction": 0.3, "fields": fields})


class TestGsm8k(EnvironmentConformance):
    @pytest.fixture
    def component(self, tmp_path):
        path = tmp_path / "gsm8k.jsonl"
        lines = [{"question": f"{i} and {i}?", "answer": f"It is <<{i}+{i}={2 * i}>>.\n#### {2 * i}"} for i in range(9)]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return Case("environment/gsm8k", {"path": str(path), "test_path": str(path)})


class TestMock(EnvironmentConformance):
    @pytest.fixture
    def component(self):
        return mocks.ENVIRONMENT


class Guess:
    """Two turns: the model guesses, is told whether that is too much, and guesses again."""

    def __init__(self, options, context):
        self.count = {"train": 5, "test": 3}

    def size(self, split):
        return self.count.get(split, 0)

    def task(self, split, index):
        if index >= self.size(split):
            raise IndexError(index)
        return Task(f"guess {split} {index}", str(index), demonstration=str(index), metadata={"numbers": [index]})

    async def run(self, task, session):
        await session.generate(task.prompt)
        session.append(f"hint {random.Random(session.seed).random()}")
        return Score(float((await session.generate()).text == task.answer), {"turns": 2.0})


class Sizeless(Guess):
    def __init__(self, options, context):
        self.count = {"train": True}


class Generous(Guess):
    def size(self, split):
        return self.count.get(split, 7)


class Boastful(Guess):
    def __init__(self, options, context):
        self.count = {"train": 20}

    def task(self, split, index):
        if index == 19:
            raise KeyError("no such record")
        return super().task(split, index)


class Endless(Guess):
    def task(self, split, index):
        return Task(f"guess {split} {index}", str(index), demonstration=str(index))


class Mute(Guess):
    def task(self, split, index):
        task = super().task(split, index)
        return Task("", task.answer, task.demonstration)


class Repeating(Guess):
    def __init__(self, options, context):
        super().__init__(options, context)
        self.seen = set()

    def task(self, split, index):
        task = super().task(split, index)
        again = (split, index) in self.seen
        self.seen.add((split, index))
        return Task(task.prompt, task.answer, task.demonstration, {"again": again})


class Local(Guess):
    def task(self, split, index):
        task = super().task(split, index)
        return Task(task.prompt, task.answer, task.demonstration, {"process": os.getpid()})


class Tupled(Guess):
    def task(self, split, index):
        task = super().task(split, index)
        return Task(task.prompt, task.answer, task.demonstration, {"pair": (1, 2)})


class Undemonstrated(Guess):
    def task(self, split, index):
        task = super().task(split, index)
        return Task(task.prompt, task.answer)


class Infinite(Guess):
    async def run(self, task, session):
        return Score(float("inf"), (await super().run(task, session)).parts)


class Moody(Guess):
    """Is bored by an episode that it has just played."""

    last = None

    async def run(self, task, session):
        this = (task.prompt, session.seed)
        bored = Moody.last == this
        Moody.last = None if bored else this
        return Score((await super().run(task, session)).value, {"bored": float(bored)})


class Shared(Guess):
    """Keeps the task in a place that all episodes share."""

    async def run(self, task, session):
        self.current = task.answer
        said = (await session.generate(task.prompt)).text
        return Score(float(said == self.current))


class Stubborn(Guess):
    async def run(self, task, session):
        with contextlib.suppress(asyncio.CancelledError):
            return await super().run(task, session)
        return Score(0.0)


class Littering(Guess):
    def __init__(self, options, context):
        super().__init__(options, context)
        self.task_of_its_own = None

    async def run(self, task, session):
        if self.task_of_its_own is None:
            self.task_of_its_own = asyncio.ensure_future(asyncio.sleep(1000))
            Littering.kept = self.task_of_its_own
        return await super().run(task, session)

    async def close(self):
        pass


BROKEN = {
    "test_sizes_are_counts": Sizeless,
    "test_an_unknown_split_has_no_tasks": Generous,
    "test_a_size_is_honest": Boastful,
    "test_there_is_nothing_beyond_the_size": Endless,
    "test_tasks_can_be_asked": Mute,
    "test_a_task_is_the_same_whenever_it_is_asked_for": Repeating,
    "test_a_task_is_the_same_in_another_process": Local,
    "test_tasks_cross_to_another_process": Tupled,
    "test_demonstrations_are_there": Undemonstrated,
    "test_an_episode_ends_in_a_finite_score": Infinite,
    "test_the_same_replies_give_the_same_episode": Moody,
    "test_episodes_do_not_disturb_each_other": Shared,
    "test_an_episode_can_be_cancelled": Stubborn,
    "test_closing_leaves_nothing": Littering,
}


def descriptor(cls):
    return EnvironmentDescriptor(
        name=cls.__name__.lower(),
        summary="an odd one",
        factory=f"{__name__}:{cls.__name__}",
        capabilities=EnvironmentCapabilities(scores=True, demonstrations=True),
    )


OWN = [descriptor(cls) for cls in (Guess, *BROKEN.values())]


@hookimpl
def areal_environments():
    return OWN


RULES = [name for name in vars(EnvironmentConformance) if name.startswith("test_")]


def failed(cls, only=tuple(RULES)):
    return {r.test: r.cause for r in run(EnvironmentConformance, descriptor(cls), only=only) if r.outcome == "failed"}


def test_an_environment_of_two_turns_keeps_every_rule():
    assert failed(Guess) == {}


def test_there_is_a_broken_environment_for_every_rule():
    assert set(BROKEN) == set(RULES)


@pytest.mark.parametrize("rule", BROKEN)
def test_an_environment_that_breaks_a_rule_fails_that_rule_alone(rule, asked):
    found = failed(BROKEN[rule], asked(rule, {rule}, RULES))
    assert list(found) == [rule], found
