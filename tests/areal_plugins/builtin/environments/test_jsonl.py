import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from areal_core.contexts import EnvironmentContext
from areal_core.data import Message, Reply, Score, Task
from areal_plugins import InputError
from areal_plugins.builtin.environments.jsonl import make
from areal_plugins.builtin.environments.options import Fields, JsonlOptions
from areal_plugins.builtin.environments.single_turn import SingleTurn

RECORD = {"prompt": "2 + 2 =", "answer": 4, "steps": "two and two", "level": 1}


def environment(tmp_path: Path, *records: Any, **options: Any) -> SingleTurn:
    path = tmp_path / "tasks.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records or (RECORD,)))
    return make(JsonlOptions(path=str(path), **options), EnvironmentContext("tasks", 0))


def only(tmp_path: Path, *records: Any, **options: Any) -> Task:
    return environment(tmp_path, *records, **options).task("train", 0)


def test_a_record_becomes_a_task(tmp_path: Path) -> None:
    assert only(tmp_path) == Task("2 + 2 =", answer="4", metadata=RECORD)


def test_fields_have_names_of_ones_own(tmp_path: Path) -> None:
    task = only(tmp_path, fields=Fields(prompt="steps", answer=None, demonstration="prompt"))
    assert (task.prompt, task.answer, task.demonstration) == ("two and two", "", "2 + 2 =")


def test_a_template_is_filled_from_the_record(tmp_path: Path) -> None:
    assert only(tmp_path, template="({level}) {prompt}").prompt == "(1) 2 + 2 ="


@pytest.mark.parametrize("template", ["{missing}", "{", "{0}", "{level.x}", "{prompt:d}"])
def test_a_template_that_cannot_be_filled_names_the_line(tmp_path: Path, template: str) -> None:
    with pytest.raises(InputError, match=r"tasks\.jsonl:1: the template cannot be filled"):
        only(tmp_path, template=template)


def test_a_prompt_can_be_a_users_message(tmp_path: Path) -> None:
    assert only(tmp_path, prompt="chat").prompt == (Message("user", "2 + 2 ="),)


def test_a_system_message_comes_first(tmp_path: Path) -> None:
    prompt = only(tmp_path, prompt="chat", system="Be brief.").prompt
    assert prompt == (Message("system", "Be brief."), Message("user", "2 + 2 ="))


def test_messages_in_the_record_stay_messages(tmp_path: Path) -> None:
    record = {"prompt": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes?"}], "answer": ""}
    assert only(tmp_path, record).prompt == (Message("user", "hi"), Message("assistant", "yes?"))


def test_a_missing_field_names_the_line_and_the_fields_there_are(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"tasks\.jsonl:2: the record has no field 'answer' \(it has 'prompt'\)"):
        environment(tmp_path, RECORD, {"prompt": "?"})


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"test_path": "t", "test_fraction": 0.1}, "two ways to hold tasks out"),
        ({"system": "Be brief."}, "needs `prompt: chat`"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        JsonlOptions(path="p", **options)


class Asked:
    """A session that notes what it is asked, and answers `four`."""

    member, seed = 0, 0

    def __init__(self) -> None:
        self.prompts: list[Any] = []
        self.scored: list[str] = []

    async def generate(self, prompt: Any = None, **overrides: Any) -> Reply:
        self.prompts.append(prompt)
        return Reply("four", (4,), "stop")

    def append(self, text: str) -> None:
        raise AssertionError("a single turn appends nothing")

    async def score(self, answer: str) -> Score:
        self.scored.append(answer)
        return Score(0.5)


def test_one_question_one_answer_one_verdict(tmp_path: Path) -> None:
    world, session = environment(tmp_path), Asked()
    score = asyncio.run(world.run(world.task("train", 0), session))
    assert (session.prompts, session.scored, score) == (["2 + 2 ="], ["four"], Score(0.5))
