"""The environment `jsonl`: questions from a file."""

from __future__ import annotations

from functools import partial

from areal_core.contexts import EnvironmentContext
from areal_core.data import Task
from areal_plugins.builtin.environments.options import JsonlOptions
from areal_plugins.builtin.environments.records import Record
from areal_plugins.builtin.environments.single_turn import SingleTurn, styled
from areal_plugins.builtin.environments.splits import Dataset, Question, Reading


def make(options: JsonlOptions, _context: EnvironmentContext) -> SingleTurn:
    """The factory; raises `InputError` naming the file, and the line where it is one."""
    reading = Reading(partial(_question, options), partial(_task, options))
    return SingleTurn(Dataset(options.path, options.test_path, options.test_fraction, reading))


def _task(options: JsonlOptions, record: Record) -> Task:
    fields = options.fields
    return Task(
        prompt=styled(_question(options, record), options.prompt, options.system),
        answer="" if fields.answer is None else record.text(fields.answer),
        demonstration=None if fields.demonstration is None else record.text(fields.demonstration),
        metadata=record.values,
    )


def _question(options: JsonlOptions, record: Record) -> Question:
    if options.template is None:
        return record.text_or_messages(options.fields.prompt)
    try:
        return options.template.format_map(record.values)
    except (KeyError, IndexError, ValueError, AttributeError, TypeError) as error:
        record.wrong(f"the template cannot be filled: {type(error).__name__}: {error}")
