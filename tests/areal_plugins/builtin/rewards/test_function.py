import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from areal_core.contexts import RewardContext
from areal_core.data import Message, Sample, Score, Task
from areal_plugins import InputError
from areal_plugins.builtin.rewards.function import Function
from areal_plugins.builtin.rewards.isolation import CallFailed, LimitExceeded
from areal_plugins.builtin.rewards.options import FunctionOptions
from areal_plugins.builtin.rewards.threads import AT_ONCE, LEFT_BEHIND

CODE = """
import os, re, threading
import numpy
from areal_core.data import Score
def right(sample): return sample.answer == sample.task.answer
def half(sample): return 0.5
def single(sample): return numpy.float32(0.5)
def truth(sample): return numpy.bool_(True)
def parts(sample): return Score(0.25, {"length": float(len(sample.answer))})
async def later(sample): return 1
def scaled(sample, *, scale): return scale * 2.0
def seen(sample): return Score(1.0, {repr(sample): 1.0})
def word(sample): return "good"
def nothing(sample): pass
def broken(sample): raise KeyError("gold")
def here(sample): return Score(1.0, {threading.current_thread().name: 0.0})
def process(sample): return os.getpid()
def wait(sample): sample.task.metadata["began"].set(); sample.task.metadata["gate"].wait(); return 1.0
def hang(sample): re.fullmatch("(a+)+", "a" * 60 + "b")
"""
SAMPLE = Sample(Task((Message("user", "ask"),), answer="ok", metadata={"level": 3}), "<user>ask", "ok", "length")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rewards") / "rewards.py"
    path.write_text(CODE)
    return path


Judge = Callable[..., Score]


@pytest.fixture
def judge(file: Path) -> Judge:
    def judge(name: str, blocking: bool = False, **options: Any) -> Score:
        async def main() -> Score:
            reward = Function(FunctionOptions(path=f"{file}:{name}", **options), RewardContext("world", blocking))
            try:
                return await reward.score(SAMPLE)
            finally:
                await reward.close()

        return asyncio.run(main())

    return judge


ISOLATED = {"timeout": 20.0, "workers": 1}


@pytest.mark.parametrize("options", [{}, {"blocking": True}, ISOLATED, {**ISOLATED, "blocking": True}])
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("right", Score(1.0)),
        ("half", Score(0.5)),
        ("parts", Score(0.25, {"length": 2.0})),
        ("later", Score(1.0)),
        ("single", Score(0.5)),
        ("truth", Score(1.0)),
    ],
)
def test_a_function_gives_a_bool_a_float_or_a_score(
    judge: Judge, options: dict[str, Any], name: str, expected: Score
) -> None:
    assert judge(name, **options) == expected


def test_arguments_are_passed_by_name(judge: Judge) -> None:
    assert judge("scaled", arguments={"scale": 3}) == Score(6.0)


@pytest.mark.parametrize("options", [{}, ISOLATED])
def test_the_function_sees_the_whole_sample(judge: Judge, options: dict[str, Any]) -> None:
    assert judge("seen", **options).parts == {repr(SAMPLE): 1.0}


@pytest.mark.parametrize(("name", "kind"), [("word", "str"), ("nothing", "NoneType")])
def test_any_other_result_is_an_error(judge: Judge, name: str, kind: str) -> None:
    with pytest.raises(TypeError, match=f"returns float, bool or Score, not {kind}"):
        judge(name)


def test_what_the_function_raises_is_not_a_zero(judge: Judge) -> None:
    with pytest.raises(KeyError, match="gold"):
        judge("broken")


def test_what_it_raises_in_a_process_is_told(judge: Judge) -> None:
    with pytest.raises(CallFailed, match="KeyError: 'gold'"):
        judge("broken", **ISOLATED)


def test_a_plain_function_leaves_the_loop_free(judge: Judge) -> None:
    assert threading.current_thread().name not in judge("here").parts


def test_a_plain_function_that_hangs_costs_only_its_own_call(file: Path) -> None:
    assert AT_ONCE + 1 < LEFT_BEHIND
    gate = threading.Event()

    def sample(gate: threading.Event, began: threading.Event) -> Sample:
        return attrs.evolve(SAMPLE, task=attrs.evolve(SAMPLE.task, metadata={"gate": gate, "began": began}))

    async def main() -> Score:
        reward = Function(FunctionOptions(path=f"{file}:wait"), RewardContext("world", False))
        for _ in range(AT_ONCE + 1):
            began = threading.Event()
            call = asyncio.create_task(reward.score(sample(gate, began)))
            await asyncio.to_thread(began.wait)
            call.cancel()
            await asyncio.wait({call})
        opened = threading.Event()
        opened.set()
        return await reward.score(sample(opened, opened))

    try:
        assert asyncio.run(main()) == Score(1.0)
    finally:
        gate.set()


def test_in_debug_mode_it_runs_on_the_loop(judge: Judge) -> None:
    assert list(judge("here", blocking=True).parts) == [threading.current_thread().name]


def test_a_function_that_hangs_in_c_is_killed(judge: Judge) -> None:
    with pytest.raises(LimitExceeded, match=r"no result within 0\.2 s"):
        judge("hang", timeout=0.2, workers=1)


@pytest.mark.parametrize("options", [{}, ISOLATED])
def test_a_function_that_is_not_there_is_known_when_the_reward_is_built(judge: Judge, options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="there is no 'missing'"):
        judge("missing", **options)
