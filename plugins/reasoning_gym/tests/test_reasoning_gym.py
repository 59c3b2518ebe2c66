import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib import metadata
from typing import Any

import areal_plugin_reasoning_gym
import attrs
import pytest
from areal_plugin_reasoning_gym import ReasoningGymOptions, areal_environments
from areal_plugin_reasoning_gym.environment import ReasoningGym, make
from areal_plugin_reasoning_gym.generation import Generator, Tasks, split_of
from areal_plugin_reasoning_gym.judging import Judge
from hypothesis import given, settings
from hypothesis import strategies as st

from areal_plugins import InputError
from areal_plugins.data import Message, Reply, Score
from areal_plugins.protocols import EnvironmentContext

SMALL = {"min_terms": 2, "max_terms": 2, "max_digits": 1}


def environment(reward: str | None = None, seed: int = 0, **options: Any) -> ReasoningGym:
    options = {"task": "chain_sum", "timeout": None, **options}
    return make(ReasoningGymOptions(**options), EnvironmentContext("sums", seed, reward))


# --- the plugin ------------------------------------------------------------------------------------


def test_the_entry_point_names_the_plugin() -> None:
    (entry,) = metadata.entry_points(group="areal_plugins", name="reasoning_gym")
    assert entry.load() is areal_plugin_reasoning_gym


def test_every_option_is_documented() -> None:
    (descriptor,) = areal_environments()
    assert all(option.metadata["doc"] for option in attrs.fields(descriptor.options))


def test_importing_it_is_light() -> None:
    code = "import sys, areal_plugin_reasoning_gym; print({'numpy', 'reasoning_gym', 'sympy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


# --- tasks -----------------------------------------------------------------------------------------


def test_a_task_is_asked_as_a_users_message() -> None:
    world = environment(instruction="Answer with the number only.", system="Be brief.")
    (system, user) = world.task("train", 0).prompt
    assert system == Message("system", "Be brief.")
    assert isinstance(user, Message)
    assert user.content.endswith("=\nAnswer with the number only.")


def test_a_task_can_be_asked_plainly() -> None:
    task = environment(prompt="plain").task("train", 0)
    assert task.prompt == task.metadata["question"]


def test_the_answer_is_the_demonstration() -> None:
    task = environment().task("train", 5)
    assert task.demonstration == task.answer == task.metadata["answer"] != ""


def questions(world: ReasoningGym, split: str, count: int) -> list[str]:
    return [world.task(split, index).metadata["question"] for index in range(count)]


def test_no_question_is_in_both_splits_however_few_there_are() -> None:
    world = environment(config=SMALL)
    assert not set(questions(world, "train", 600)) & set(questions(world, "test", 300))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**63 - 1), st.integers(0, 10**9), st.floats(0.05, 0.5), st.sampled_from(["train", "test"]))
def test_an_entry_is_of_its_split(seed: int, index: int, share: float, split: str) -> None:
    tasks = Tasks(Generator("sums", "chain_sum", {}), seed, share)
    assert split_of(tasks.entry(split, index)["question"], share) == split


def test_held_out_tasks_are_the_same_for_every_seed() -> None:
    assert questions(environment(seed=1), "test", 20) == questions(environment(seed=2), "test", 20)


def test_tasks_to_train_on_follow_the_seed() -> None:
    assert questions(environment(seed=1), "train", 20) != questions(environment(seed=2), "train", 20)


def test_tasks_do_not_repeat_soon() -> None:
    world = environment(config={"min_digits": 4})
    assert len(set(questions(world, "train", 200))) == 200


TELL = """
from areal_plugin_reasoning_gym.generation import Generator, Tasks
for name in ("chain_sum", "word_sorting", "gsm_symbolic", "isomorphic_strings"):
    tasks = Tasks(Generator("x", name, {}), 3, 0.2)
    print([tasks.entry(split, index)["question"] for split in ("train", "test") for index in (70, 2)])
"""


def test_every_process_makes_the_same_tasks() -> None:
    started = [
        subprocess.Popen(
            [sys.executable, "-c", TELL], stdout=subprocess.PIPE, env={**os.environ, "PYTHONHASHSEED": "5"}
        )
        for _ in range(2)
    ]
    first, second = (process.communicate()[0] for process in started)
    assert first == second != b""


@pytest.mark.parametrize(("split", "size"), [("train", 7), ("test", None), ("validation", 0)])
def test_sizes_are_as_told(split: str, size: int | None) -> None:
    assert environment(train_size=7).size(split) == size


@pytest.mark.parametrize(("split", "index"), [("train", 7), ("train", -1), ("validation", 0)])
def test_there_is_no_task_beyond_the_last(split: str, index: int) -> None:
    with pytest.raises(IndexError, match=f"split '{split}' has"):
        environment(train_size=7).task(split, index)


# --- bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"task": "chain_sums"}, r"environment sums: reasoning-gym has no task 'chain_sums' \(did you mean chain_sum"),
        ({"config": {"max_term": 3}}, r"chain_sum has no config 'max_term' \(it has min_terms, max_terms, "),
        ({"config": {"min_terms": 0}}, "config does not suit chain_sum: min_terms must be positive"),
        ({"config": {"min_terms": "two"}}, "config does not suit chain_sum: '>' not supported"),
    ],
)
def test_what_reasoning_gym_refuses_is_named(options: Mapping[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        environment(**options)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"config": {"seed": 1}}, "config must not set seed"),
        ({"config": {"size": 1}}, "config must not set size: use train_size"),
        ({"prompt": "plain", "system": "x"}, "needs `prompt: chat`"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: Mapping[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        environment(**options)


def test_a_task_with_too_few_questions_says_so() -> None:
    fixed = {"min_terms": 2, "max_terms": 2, "max_digits": 1}
    tasks = Tasks(Generator("sums", "chain_sum", fixed), 0, 1e-9)
    with pytest.raises(InputError, match="no question for the split 'test': the task has too few different ones"):
        tasks.entry("test", 0)


@pytest.mark.parametrize("value", [None, "random"])
def test_a_task_that_follows_the_hash_seed_wants_it_set(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    if value is not None:
        monkeypatch.setenv("PYTHONHASHSEED", value)
    with pytest.raises(InputError, match="ransom_note gives every process other tasks unless PYTHONHASHSEED is set"):
        environment(task="ransom_note")


# --- judging ---------------------------------------------------------------------------------------


def judged(text: str, entry: Mapping[str, Any], blocking: bool = False, **options: Any) -> Score:
    chosen = ReasoningGymOptions(**{"task": "chain_sum", "timeout": None, **options})

    async def main() -> Score:
        judge = Judge(Generator("sums", chosen.task, chosen.config), chosen, blocking)
        try:
            return await judge.verdict(text, entry)
        finally:
            await judge.close()

    return asyncio.run(main())


TWELVE = {"question": "5 + 7 =", "answer": "12", "metadata": {}}


@pytest.mark.parametrize(
    ("answer", "how", "value", "lenient"),
    [
        ("12", "strict", 1.0, 1.0),
        (" 12.0\n", "strict", 1.0, 1.0),
        ("The answer is 12.", "strict", 0.0, 1.0),
        ("The answer is 12.", "last-number", 1.0, 1.0),
        ("12 or 13", "last-number", 0.0, 0.0),
        ("no idea", "last-number", 0.0, 0.0),
        ("it is\n12", "last-line", 1.0, 1.0),
        ("<answer>12</answer> of 100", "answer-tag", 1.0, 0.0),
        ("", "strict", 0.0, 0.0),
    ],
)
def test_an_answer_is_judged(answer: str, how: Any, value: float, lenient: float) -> None:
    expected = Score(value, {"correct": value, "unverified": 0.0, "lenient": lenient})
    assert judged(answer, TWELVE, answer=how) == expected


def test_partial_credit_is_the_data_sets() -> None:
    score = judged("it is 12", TWELVE, partial_credit=True)
    assert (score.value, score.parts["correct"]) == (0.25, 0.0)


def test_an_answer_that_is_no_number_has_no_lenient_part() -> None:
    entry = {"question": "?", "answer": "yes", "metadata": {}}
    assert "lenient" not in judged("yes", entry, task="course_schedule").parts


COUNTDOWN = {"question": "?", "answer": "2*3", "metadata": {"numbers": [2, 3], "target": 6}}


@pytest.mark.parametrize("blocking", [False, True])
def test_a_judge_of_its_own_runs_in_a_process(blocking: bool) -> None:
    assert judged("3*2", COUNTDOWN, blocking, task="countdown", timeout=60.0).value == 1.0


def test_a_judgement_that_never_ends_is_killed_and_visible() -> None:
    hopeless = "9**9**9**9"
    score = judged(hopeless, COUNTDOWN, task="countdown", timeout=1.0)
    assert (score.value, score.parts["unverified"]) == (0.0, 1.0)


class Session:
    member, seed = 0, 0

    def __init__(self, text: str) -> None:
        self.text = text

    async def generate(self, prompt: Any = None, **overrides: Any) -> Reply:
        return Reply(self.text, (), "stop")

    def append(self, text: str) -> None:
        raise AssertionError("a single turn appends nothing")

    async def score(self, answer: str) -> Score:
        return Score(0.125)


@pytest.fixture
def worlds() -> Iterator[dict[str | None, ReasoningGym]]:
    worlds = {reward: environment(reward) for reward in (None, "reward/exact")}
    yield worlds
    for world in worlds.values():
        asyncio.run(world.close())


@pytest.mark.parametrize(("reward", "value"), [(None, 1.0), ("reward/exact", 0.125)])
def test_the_specs_reward_judges_where_there_is_one(
    worlds: dict[str | None, ReasoningGym], reward: str | None, value: float
) -> None:
    task = worlds[reward].task("train", 0)
    assert asyncio.run(worlds[reward].run(task, Session(task.answer))).value == value
