import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from areal_core.local import load_file
from areal_plugins.data import Reply, Score, Task
from areal_plugins.protocols import EnvironmentContext

FILE = Path(__file__).parents[2] / "specs" / "quickstart_task.py"
plugin = load_file(FILE)


def environment(seed: int = 0, **options: Any) -> Any:
    return plugin.Backwards(plugin.Options(**options), EnvironmentContext("backwards", seed))


def words(world: Any, split: str, count: int = 300) -> list[str]:
    return [world.task(split, index).answer[::-1] for index in range(count)]


def test_the_plugin_offers_one_documented_environment() -> None:
    (descriptor,) = plugin.areal_environments()
    assert (descriptor.name, descriptor.factory) == ("backwards", f"{plugin.__name__}:Backwards")
    assert all(option.metadata["doc"] for option in attrs.fields(descriptor.options))


@given(st.integers(0, 2**63), st.integers(0, 10**9), st.sampled_from(["train", "test"]), st.integers(2, 8))
def test_a_task_is_a_word_of_its_split(seed: int, index: int, split: str, letters: int) -> None:
    task = environment(seed, letters=letters).task(split, index)
    word = task.answer[::-1]
    assert task.prompt == f"{word}="
    assert len(word) == letters
    assert plugin.held_out(word) == (split == "test")


def test_no_word_is_in_both_splits() -> None:
    world = environment(letters=3)
    assert not set(words(world, "train")) & set(words(world, "test"))


def test_held_out_words_are_the_same_for_every_seed() -> None:
    assert words(environment(1), "test") == words(environment(2), "test")


def test_words_to_train_on_follow_the_seed() -> None:
    assert words(environment(1), "train") != words(environment(2), "train")


def test_every_process_makes_the_same_words() -> None:
    code = f"""
import sys
from pathlib import Path
from areal_core.local import load_file
from areal_plugins.protocols import EnvironmentContext
plugin = load_file(Path({str(FILE)!r}))
world = plugin.Backwards(plugin.Options(), EnvironmentContext("backwards", 3))
print([world.task("train", index) for index in range(20)])
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == str([environment(3).task("train", index) for index in range(20)])


@pytest.mark.parametrize(("careful", "low", "high"), [(0.0, 0, 0), (0.4, 80, 160), (1.0, 300, 300)])
def test_the_teacher_is_right_as_often_as_told(careful: float, low: int, high: int) -> None:
    world = environment(letters=8, careful=careful)
    tasks = [world.task("train", index) for index in range(300)]
    assert low <= sum(task.demonstration == task.answer for task in tasks) <= high
    assert all(task.demonstration in (task.answer, task.answer[::-1]) for task in tasks)


class Session:
    member, seed = 0, 0

    def __init__(self, text: str) -> None:
        self.text = text

    async def generate(self, prompt: Any = None, **overrides: Any) -> Reply:
        return Reply(self.text, (), "stop")

    def append(self, text: str) -> None:
        raise AssertionError("a single turn appends nothing")

    async def score(self, answer: str) -> Score:
        raise AssertionError("it judges by itself")


@pytest.mark.parametrize(("answer", "value"), [("dcba", 1.0), ("abcd", 0.0), ("dcb", 0.0), ("dcbaa", 0.0)])
def test_only_the_word_backwards_is_right(answer: str, value: float) -> None:
    assert asyncio.run(environment().run(Task("abcd=", answer="dcba"), Session(answer))) == Score(value)


def test_the_splits_have_no_end() -> None:
    assert [environment().size(split) for split in ("train", "test", "other")] == [None, None, 0]
