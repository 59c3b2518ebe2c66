import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from areal_core.contexts import EnvironmentContext
from areal_core.data import Message, Reply, Score
from areal_plugins import InputError
from areal_plugins.builtin.environments.gsm8k import Gsm8k, judge, make
from areal_plugins.builtin.environments.options import INSTRUCTION, Gsm8kOptions

WORKED = "She sold 48/2 = <<48/2=24>>24 clips in May.\nTogether 48+24 = <<48+24=72>>72.\n#### 72"


def environment(tmp_path: Path, answer: str = WORKED, reward: str | None = None, **options: Any) -> Gsm8k:
    path = tmp_path / "train.jsonl"
    path.write_text(json.dumps({"question": "How many clips?", "answer": answer}) + "\n")
    return make(Gsm8kOptions(path=str(path), **options), EnvironmentContext("math", 0, reward))


def test_a_question_is_asked_with_the_instruction(tmp_path: Path) -> None:
    prompt = environment(tmp_path).task("train", 0).prompt
    assert prompt == (Message("user", f"How many clips?\n\n{INSTRUCTION}"),)


def test_it_can_be_asked_plainly(tmp_path: Path) -> None:
    assert environment(tmp_path, prompt="plain", instruction=None).task("train", 0).prompt == "How many clips?"


def test_the_answer_is_the_number_after_the_hashes(tmp_path: Path) -> None:
    assert environment(tmp_path, "#### 1,200").task("train", 0).answer == "1200"


def test_the_demonstration_is_worked_without_the_calculator_notes(tmp_path: Path) -> None:
    demonstration = environment(tmp_path).task("train", 0).demonstration
    assert demonstration == "She sold 48/2 = 24 clips in May.\nTogether 48+24 = 72.\n#### 72"


@pytest.mark.parametrize("answer", ["72", "#### many", "####"])
def test_a_record_without_number_is_named(tmp_path: Path, answer: str) -> None:
    with pytest.raises(InputError, match=r"train\.jsonl:1: 'answer' must end in #### and a number"):
        environment(tmp_path, answer)


def test_without_data_it_says_where_to_get_it() -> None:
    with pytest.raises(InputError, match=r"environment math: gsm8k needs .* files \(add `path: .*grade-school-math"):
        make(Gsm8kOptions(), EnvironmentContext("math", 0))


@pytest.mark.parametrize(
    ("answer", "value", "marked"),
    [
        ("24 + 48 = 72\n#### 72", 1.0, 1.0),
        ("#### 72 clips", 1.0, 1.0),
        ("#### $72.00", 1.0, 1.0),
        ("It is 72.", 1.0, 0.0),
        ("72\n#### 73", 0.0, 1.0),
        ("72\n#### none", 0.0, 1.0),
        ("", 0.0, 0.0),
    ],
)
def test_an_answer_is_judged_by_its_number(answer: str, value: float, marked: float) -> None:
    assert judge(answer, "72") == Score(value, {"marked": marked})


class Session:
    member, seed = 0, 0

    async def generate(self, prompt: Any = None, **overrides: Any) -> Reply:
        return Reply("#### 72", (), "stop")

    def append(self, text: str) -> None:
        raise AssertionError("a single turn appends nothing")

    async def score(self, answer: str) -> Score:
        return Score(0.25)


@pytest.mark.parametrize(("reward", "value"), [(None, 1.0), ("reward/math", 0.25)])
def test_the_specs_reward_judges_where_there_is_one(tmp_path: Path, reward: str | None, value: float) -> None:
    world = environment(tmp_path, reward=reward)
    assert asyncio.run(world.run(world.task("train", 0), Session())).value == value
