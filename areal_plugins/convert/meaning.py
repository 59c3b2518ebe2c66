"""What several frameworks say in their own words: how long, with which data, spread over what."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any

from areal_plugins.convert.table import Lost, Make, Needless, Noted
from areal_plugins.convert.theirs import Theirs

Number = Callable[[Theirs], int | None]
"""A figure of the config; None where it cannot be known from it."""

GSM8K_TASKS = 7473
"""Its training set (https://huggingface.co/datasets/openai/gsm8k)."""

AXES = {"d": "dp", "t": "tp", "p": "pp", "c": "sp", "e": "ep"}
"""AReaL's letters: data, tensor, pipeline, context and expert parallelism."""


# --- how long ----------------------------------------------------------------------------------------


def tasks(theirs: Theirs, dataset: str | None) -> int | None:
    """Tasks of the training set: as told, or known."""
    return theirs.facts.tasks or (GSM8K_TASKS if dataset and is_gsm8k(dataset) else None)


def epoch(known: int | None, prompts: int | None) -> int | None:
    """Steps an epoch: whole batches, the rest being dropped."""
    return max(known // prompts, 1) if known and prompts else None


def max_steps(steps: Number, epochs: Callable[[Theirs], Any]) -> Make:
    """`training.max_steps`; where it cannot be known, our default is kept."""

    def make(theirs: Theirs) -> Any:
        found = steps(theirs)
        if found is not None:
            return found
        return Lost(
            f"{epochs(theirs)} epochs are as many steps as the training set has batches: convert again with --tasks N, "
            "its number of tasks. Until then training.max_steps is our default"
        )

    return make


def warmup(count: Callable[[Theirs], Any], share: Callable[[Theirs], Any], steps: Number) -> Make:
    """`training.optimizer.warmup_steps`, from a number of steps or a share of all."""

    def make(theirs: Theirs) -> Any:
        number, part, total = count(theirs), share(theirs) or 0, steps(theirs)
        if number is not None and number >= 1:
            return int(number)
        part = part or number or 0
        if not part:
            return 0
        if total is None:
            return Lost(f"a share of {part} of all steps, whose number is not known; there is no warm-up")
        return Noted(int(part * total), f"{part} of {total} steps")

    return make


def every(steps: Callable[[Theirs], Any], epochs: Callable[[Theirs], Any], an_epoch: Number) -> Make:
    """Steps between two of something that they count in steps or in epochs."""

    def make(theirs: Theirs) -> Any:
        number = steps(theirs)
        if number and number >= 1:
            return int(number)
        count = epochs(theirs)
        if not count:
            return Needless("not set there; our default holds")
        each = an_epoch(theirs)
        if each is None:
            return Lost(f"every {count} epochs are as many steps as the training set has batches: give --tasks N")
        return Noted(count * each, f"{each} steps an epoch")

    return make


# --- with which data ---------------------------------------------------------------------------------


def is_gsm8k(dataset: str) -> bool:
    """Whether a path or hub id names GSM8K."""
    return "gsm8k" in dataset.lower().replace("-", "").replace("_", "")


def environment(dataset: str) -> str:
    """The environment that reads it."""
    return "gsm8k" if is_gsm8k(dataset) else "jsonl"


def records(dataset: Any, split: str) -> Any:
    """The JSON Lines file to be written from it: where it is a file beside it, else a directory called like it."""
    name = str(dataset[0] if isinstance(dataset, list) and dataset else dataset)
    path = PurePosixPath(name)
    if path.suffix == ".jsonl":
        return name
    if path.suffix in (".parquet", ".json", ".csv", ".arrow"):
        return Noted(str(path.with_suffix(".jsonl")), f"write {path.name} as JSON Lines, one object a line")
    here = f"data/{path.name or 'tasks'}/{split}.jsonl"
    return Noted(here, f"export the split {split} of {name} as JSON Lines, one object a line")


# --- spread over what --------------------------------------------------------------------------------


def axes(text: str) -> dict[str, int] | None:
    """The axes of `d4p1t1`, those of size 1 left out; None where it is more than that."""
    found = re.findall(r"([dtpce])([1-9][0-9]*)", text)
    if "".join(letter + size for letter, size in found) != text or not found:
        return None
    sizes = {AXES[letter]: int(size) for letter, size in found}
    return {axis: size for axis, size in sizes.items() if size > 1} or {"dp": 1}


def devices(sizes: dict[str, int]) -> int:
    """What axes multiply to; experts are spread over devices that are counted already."""
    count = 1
    for axis, size in sizes.items():
        count *= size if axis != "ep" else 1
    return count
