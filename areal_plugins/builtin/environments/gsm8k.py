"""The environment `gsm8k`: grade-school mathematics (Cobbe et al., 2021, arXiv 2110.14168)."""

from __future__ import annotations

import re
from functools import partial

from areal_core.contexts import EnvironmentContext
from areal_core.data import Score, Task
from areal_core.protocols import Session
from areal_plugins import InputError
from areal_plugins.builtin.environments.check import GET_GSM8K
from areal_plugins.builtin.environments.options import Gsm8kOptions
from areal_plugins.builtin.environments.records import Record
from areal_plugins.builtin.environments.single_turn import SingleTurn, styled
from areal_plugins.builtin.environments.splits import Dataset, Reading
from areal_plugins.builtin.rewards.extract import after_hashes, last_number, number

_CALCULATOR = re.compile(r"<<[^>]*>>")


def make(options: Gsm8kOptions, context: EnvironmentContext) -> Gsm8k:
    """The factory; raises `InputError` where there is no data, or a record is not of its kind."""
    if options.path is None:
        raise InputError(f"environment {context.name}", "gsm8k needs the data set's JSON Lines files", GET_GSM8K)
    reading = Reading(_question, partial(_task, options))
    return Gsm8k(Dataset(options.path, options.test_path, options.test_fraction, reading), context)


class Gsm8k(SingleTurn):
    """Judges by itself, unless the spec gives a reward.

    The answer's number is the one after its last `####`, or the last one where there is none; part
    `marked` is 1 where there is.
    """

    def __init__(self, dataset: Dataset, context: EnvironmentContext) -> None:
        super().__init__(dataset)
        self._own_judge = context.reward is None

    async def run(self, task: Task, session: Session) -> Score:
        if not self._own_judge:
            return await super().run(task, session)
        return judge((await session.generate(task.prompt)).text, task.answer)


def judge(answer: str, gold: str) -> Score:
    """1 where the answer's number equals `gold`."""
    marked = after_hashes(answer)
    found = number(last_number(answer if marked is None else marked) or "")
    return Score(float(found is not None and found == number(gold)), {"marked": float(marked is not None)})


def _question(record: Record) -> str:
    return record.text("question")


def _task(options: Gsm8kOptions, record: Record) -> Task:
    question, worked = _question(record), record.text("answer")
    gold = number(after_hashes(worked) or "")
    if gold is None:
        record.wrong("'answer' must end in #### and a number")
    prompt = question if options.instruction is None else f"{question}\n\n{options.instruction}"
    return Task(
        prompt=styled(prompt, options.prompt, options.system),
        answer=f"{gold:f}",
        demonstration=_CALCULATOR.sub("", worked),
    )
