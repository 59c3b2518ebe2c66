"""What can be known about tasks in files before any is read."""

from __future__ import annotations

from collections.abc import Iterator

from areal_plugins import CheckContext, Finding, Severity

GET_GSM8K = (
    "add `path: train.jsonl` and `test_path: test.jsonl`, from github.com/openai/grade-school-math "
    "(grade_school_math/data) or the hub's openai/gsm8k"
)


def held_out(context: CheckContext) -> Iterator[Finding]:
    """An evaluation on `test` needs tasks that are held out."""
    options, evaluation = context.options, context.spec.evaluation
    if evaluation.split == "test" and evaluation.enabled and not (options.test_path or options.test_fraction):
        message = "no tasks are held out to evaluate on"
        hint = "add test_path or test_fraction, or switch evaluation off: {before: false, after: false}"
        yield Finding("no-test-tasks", message, context.path, hint)
    if options.path is not None and options.path == options.test_path:
        message = "path and test_path are the same file, so that held-out tasks would be trained on"
        yield Finding("same-file", message, (*context.path, "test_path"), "use test_fraction to hold out a part of it")


def gsm8k(context: CheckContext) -> Iterator[Finding]:
    """The data set does not come with this package."""
    if context.options.path is None:
        message = "gsm8k needs the data set's JSON Lines files"
        yield Finding("no-data", message, context.path, GET_GSM8K, Severity.UNAVAILABLE)
    else:
        yield from held_out(context)
