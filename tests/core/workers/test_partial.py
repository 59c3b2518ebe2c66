"""Answers on their way, as trajectories and back."""

import numpy as np
import pytest

from areal_core.data import NO_VERSION, Completion, TaskRef, TrajectoryGroup, WeightVersion
from areal_core.workers.partial import continued, interrupted, until

PROMPT = np.array([7, 8, 9], np.int32)
OLD, NEW = WeightVersion(1, 4).code, WeightVersion(1, 5).code


def completion(index: int, versions: list[int], finish: str = "abort", text: str = "") -> Completion:
    size = len(versions)
    tokens, logprobs = np.arange(size, dtype=np.int32) + 10, -np.arange(size, dtype=np.float32)
    return Completion(index, tokens, logprobs, np.array(versions, dtype=np.int64), finish, text)  # type: ignore[arg-type]


def group(*completions: Completion) -> TrajectoryGroup:
    return TrajectoryGroup(5, TaskRef("world", "train", 3), interrupted(PROMPT, completions))


BEGUN = (completion(0, [OLD, NEW]), completion(1, [OLD], "stop", "so"), completion(2, []))


def test_a_partial_trajectory_is_the_prompt_and_what_was_drawn() -> None:
    first, *_ = group(*BEGUN)
    assert {name: column.tolist() for name, column in first.columns.items()} == {
        "tokens": [7, 8, 9, 10, 11],
        "mask": [0, 0, 0, 1, 1],
        "logprobs": [0, 0, 0, 0, -1],
        "versions": [NO_VERSION, NO_VERSION, NO_VERSION, OLD, NEW],
    }
    kinds = {name: column.dtype.name for name, column in first.columns.items()}
    assert kinds == {"tokens": "int32", "mask": "uint8", "logprobs": "float32", "versions": "int64"}


def test_a_partial_group_is_as_old_as_its_oldest_token() -> None:
    assert group(*BEGUN).oldest == WeightVersion(1, 4)
    assert group(completion(0, [])).oldest is None


def test_answers_come_back_as_they_were() -> None:
    for before, after in zip(BEGUN, continued(group(*BEGUN), PROMPT, 3), strict=True):
        assert (after.index, after.finish, after.text) == (before.index, before.finish, before.text)
        for name in ("tokens", "logprobs", "versions"):
            assert getattr(after, name).tolist() == getattr(before, name).tolist()


@pytest.mark.parametrize(("prompt", "n"), [([7, 8], 3), ([7, 8, 1], 3), ([7, 8, 9, 10], 3), ([7, 8, 9], 2)])
def test_nothing_goes_on_where_something_else_is_asked(prompt: list[int], n: int) -> None:
    assert continued(group(*BEGUN), np.array(prompt, np.int32), n) == ()


def test_what_later_weights_drew_is_cut_off_and_the_answer_is_not_whole_any_more() -> None:
    whole = completion(0, [OLD, OLD, NEW], "stop", "so")
    kept, cut = until(group(BEGUN[1], whole), OLD)
    assert (kept.finish, kept.answer, len(kept)) == ("stop", "so", 4)
    assert (cut.finish, cut.answer, len(cut)) == ("abort", "", 5)
    assert cut.columns["versions"].tolist() == [NO_VERSION] * 3 + [OLD] * 2
