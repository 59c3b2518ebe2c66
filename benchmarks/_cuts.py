"""Ends a run at one point of its life: its controller, which writes the run directory, kills itself there."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
from collections.abc import Callable
from importlib import import_module
from itertools import count
from typing import Any

from attrs import field, frozen


@frozen
class Point:
    """Before, during or after the `nth` call of `target`: a function `module:attribute`, or a worker's method."""

    target: str
    when: str
    nth: int = field(default=1)


POINTS: dict[str, Point] = {
    "before the first step": Point("train", "before"),
    "while a step is trained": Point("train", "during", 6),
    "a step is trained, and nobody knows": Point("train", "after", 7),
    "a step's figures are written": Point("areal_core.pipeline.rundir:RunDirectory.trained", "before", 7),
    "just after a step": Point("areal_core.pipeline.rundir:RunDirectory.trained", "after", 10),
    "while weights are published": Point("publish", "during", 4),
    "a version is fetched by one engine": Point("prepare", "after", 5),
    "between prepare and commit": Point("commit", "before", 7),
    "one engine of two has swapped": Point("commit", "after", 9),
    "groups are under way": Point("run_group", "during", 40),
    "while the first tasks are evaluated": Point("areal_core.pipeline.evaluate:Evaluator._play", "before", 5),
    "while an evaluation runs beside": Point("areal_core.pipeline.evaluate:Evaluator._play", "after", 20),
    "before an evaluation is written": Point("areal_core.pipeline.evaluate:Evaluator._record", "before", 3),
    "a checkpoint is begun": Point("areal_core.pipeline.checkpoint:begin", "after", 2),
    "between a checkpoint's model and state": Point("save_state", "before", 2),
    "the trainer's part is written": Point("written", "after", 1),
    "between a checkpoint's files": Point("numpy:savez", "after", 2),
    "before a checkpoint is sealed": Point("areal_core.pipeline.manifest:seal", "before", 2),
    "before a checkpoint has its name": Point("pathlib:Path.rename", "before", 1),
    "a checkpoint has its name": Point("areal_core.pipeline.manifest:sync", "after", 6),
    "while an older checkpoint is removed": Point("areal_core.pipeline.checkpoint:_remove", "before", 2),
    "just after a checkpoint": Point("areal_core.pipeline.checkpoint:finish", "after", 2),
    "before the last checkpoint": Point("areal_core.pipeline.checkpoint:begin", "before", 3),
    "after the last checkpoint": Point("areal_core.pipeline.checkpoint:finish", "after", 3),
    "before the last evaluation is written": Point("areal_core.pipeline.evaluate:Evaluator._record", "before", 5),
}
"""For a run of 12 steps on two engines with checkpoints every 4 and evaluations before, every 3, and after."""


def cut(point: Point, end: Callable[[], None], patch: Callable[[Any, str, Any], None] = setattr) -> None:
    """Have `end` called once the program comes to `point`."""
    numbers = count(1)

    def strikes() -> bool:
        return next(numbers) == point.nth

    if ":" in point.target:
        owner, name = _find(point.target)
        function = getattr(owner, name)
        wrap = _around if inspect.iscoroutinefunction(function) else _around_plain
        patch(owner, name, wrap(function, point.when, lambda _args: strikes(), end))
        return
    for handle in ("areal_plugins.builtin.executors.inline:InlinePeer", "areal_core.workers.link:Link"):
        owner, name = _find(f"{handle}.call")
        asked = _around(getattr(owner, name), point.when, lambda args: args[1] == point.target and strikes(), end)
        patch(owner, name, asked)


def _find(target: str) -> tuple[Any, str]:
    module, _, path = target.partition(":")
    owner: Any = import_module(module)
    *parts, name = path.split(".")
    for part in parts:
        owner = getattr(owner, part)
    return owner, name


def _around(function: Any, when: str, strikes: Callable[[Any], bool], end: Callable[[], None]) -> Any:
    async def called(*args: Any, **kwargs: Any) -> Any:
        now = strikes(args)
        if now and when == "before":
            end()
        if not (now and when == "during"):  # as without this function: a task more would change the order of events
            result = await function(*args, **kwargs)
            if now:
                end()
            return result
        work = asyncio.ensure_future(function(*args, **kwargs))
        try:
            await asyncio.sleep(0.01)
            end()
            return await work
        finally:
            work.cancel()

    return called


def _around_plain(function: Any, when: str, strikes: Callable[[Any], bool], end: Callable[[], None]) -> Any:
    def called(*args: Any, **kwargs: Any) -> Any:
        now = strikes(args)
        if now and when == "before":
            end()
        result = function(*args, **kwargs)
        if now and when == "after":
            end()
        return result

    return called


def stop_at(point: Point) -> None:
    """Have this process killed at `point`, so that nothing is tidied up."""
    cut(point, lambda: os.kill(os.getpid(), signal.SIGKILL))
