from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from areal_core.columns import Columns
from areal_core.data import Completion, GenerateRequest, Sampling, TaskRef, Trajectory, TrajectoryGroup
from areal_core.workers.message import Kind, Packer, Unpacker
from areal_core.workers.partial import continued, interrupted
from areal_core.workers.plans import GroupOrder, GroupResult

numbers = st.sampled_from("?bBhHiIqQefdFD").map(np.dtype)
arrays = hnp.arrays(numbers, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))


def cross(payload: Any, kind: Any) -> Any:
    head, parts, size = Packer().pack(Kind.REPLY, 1, "", payload)
    body = memoryview(bytearray(b"".join(parts)))
    assert len(body) == size
    unpacker = Unpacker()
    return unpacker.payload(unpacker.message(memoryview(head)), kind, body)


@given(st.lists(arrays, max_size=4))
def test_arrays_arrive_as_they_were(sent: list[np.ndarray]) -> None:
    for before, after in zip(sent, cross(sent, list[np.ndarray]), strict=True):
        np.testing.assert_array_equal(before, after)
        assert (before.dtype, before.shape) == (after.dtype, after.shape)


@given(arrays)
def test_arrays_arrive_inside_untyped_payloads(sent: np.ndarray) -> None:
    np.testing.assert_array_equal(cross({"deep": [sent]}, dict[str, Any])["deep"][0], sent)


def test_an_array_can_be_written_to_where_it_arrives() -> None:
    arrived = cross(np.zeros(3), np.ndarray)
    arrived[:] = 1
    assert arrived.sum() == 3


@pytest.mark.parametrize("size", [10, 100_000])
def test_a_strided_array_arrives_whole(size: int) -> None:
    sent = np.arange(2 * size).reshape(size, 2).T
    np.testing.assert_array_equal(cross(sent, np.ndarray), sent)


def test_a_large_array_is_not_copied_before_it_is_sent() -> None:
    sent = np.zeros(100_000)
    _, parts, _ = Packer().pack(Kind.REPLY, 1, "", sent)
    assert any(np.shares_memory(sent, np.frombuffer(part, np.uint8)) for part in parts if len(part))


def test_a_small_array_may_change_once_its_message_is_packed() -> None:
    sent = np.zeros(4, np.uint8)
    _, parts, _ = Packer().pack(Kind.REPLY, 1, "", sent)
    sent[:] = 7
    assert bytes(parts[0])[:4] == bytes(4)


def test_a_scored_group_arrives_whole() -> None:
    columns = {"tokens": np.arange(4, dtype=np.int32), "logprobs": np.linspace(-1, 0, 4, dtype=np.float32)}
    trajectory = Trajectory(2, columns, 1, 0.5, "stop", scores={"exact": 0.5}, prompt="?", answer="!")
    sent = GroupResult(TrajectoryGroup(9, TaskRef("math", "train", 3), (trajectory,)), reward_seconds=0.25)
    arrived = cross(sent, GroupResult)
    assert arrived.group.task == sent.group.task
    assert arrived.group.trajectories[0].scores == {"exact": 0.5}
    for name, column in columns.items():
        np.testing.assert_array_equal(arrived.group.trajectories[0].columns[name], column)


def test_records_arrive_equal() -> None:
    sent = GroupOrder(3, TaskRef("math", "train", 7), (0, 2), Sampling(stop=("\n",)), seed=2**63 - 1, timeout=1.5)
    assert cross(sent, GroupOrder) == sent


def test_what_was_begun_arrives_with_an_order_and_with_a_request() -> None:
    tokens, logprobs, versions = np.arange(3, dtype=np.int32), np.zeros(3, np.float32), np.full(3, 7, np.int64)
    begun = Completion(0, tokens, logprobs, versions, "abort")
    group = TrajectoryGroup(3, TaskRef("math", "train", 7), interrupted(tokens, [begun]))
    sent = GroupOrder(3, group.task, (0,), Sampling(), seed=1, begun=group)
    told = cross(cross([group], list[TrajectoryGroup])[0], TrajectoryGroup)
    for arrived in (told, cross(sent, GroupOrder).begun):
        for name, column in group.trajectories[0].columns.items():
            np.testing.assert_array_equal(arrived.trajectories[0].columns[name], column)
    asked = GenerateRequest("r", tokens, Sampling(), begun=continued(told, tokens, 1))
    (arrived,) = cross(asked, GenerateRequest).begun
    assert (arrived.index, arrived.finish) == (0, "abort")
    for name in ("tokens", "logprobs", "versions"):
        np.testing.assert_array_equal(getattr(arrived, name), getattr(begun, name))


def test_numpy_scalars_arrive_as_plain_numbers() -> None:
    assert cross({"loss": np.float32(0.5), "n": np.int64(3)}, dict[str, float | int]) == {"loss": 0.5, "n": 3}


@pytest.mark.parametrize("value", [Path("/x"), object(), np.array(["text"]), np.array([object()]), np.zeros(2, ">f8")])
def test_what_cannot_cross_is_refused_before_it_is_sent(value: object) -> None:
    with pytest.raises(TypeError, match="cannot cross between processes"):
        Packer().pack(Kind.REPLY, 1, "", value)


def test_a_packer_goes_on_after_a_refusal() -> None:
    packer = Packer()
    with pytest.raises(TypeError):
        packer.pack(Kind.REPLY, 1, "", [np.zeros(3), object()])
    _, _, size = packer.pack(Kind.REPLY, 1, "", np.zeros(1))
    assert size == 8


@pytest.mark.parametrize(("payload", "kind"), [("5", int), (1.5, int), ({"a": 1}, list[int]), ([1], np.ndarray)])
def test_a_payload_of_another_type_is_refused(payload: object, kind: Any) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - msgspec's own
        cross(payload, kind)


@given(st.binary(max_size=64), st.binary(max_size=64))
def test_whatever_bytes_come_a_message_is_decoded_or_refused(head: bytes, body: bytes) -> None:
    unpacker = Unpacker()
    try:
        message = unpacker.message(memoryview(head))
        unpacker.payload(message, Any, memoryview(body))
    except ValueError:
        pass


@given(st.integers(-128, 127), st.binary(max_size=40), st.binary(max_size=32))
def test_an_array_never_reaches_beyond_its_frame(code: int, where: bytes, body: bytes) -> None:
    from msgspec.msgpack import Ext

    head, _, _ = Packer().pack(Kind.REPLY, 1, "", Ext(code, where))
    unpacker = Unpacker()
    try:
        array = unpacker.payload(unpacker.message(memoryview(head)), np.ndarray, memoryview(body))
    except ValueError:
        return
    assert array.nbytes <= len(body)


def trajectory(**columns: np.ndarray) -> Trajectory:
    return Trajectory(0, columns, 0, 1.0, "stop")


@pytest.mark.parametrize("shape", [(3,), (3, 2)], ids=["a token each", "several numbers a step"])
def test_a_trajectory_is_passed_on_as_it_came(shape: tuple[int, ...]) -> None:
    sent = trajectory(tokens=np.arange(np.prod(shape), dtype=np.int32).reshape(shape), mask=np.ones(3, np.uint8))
    first = cross(GroupResult(TrajectoryGroup(0, TaskRef("e", "train", 0), (sent, sent))), GroupResult)
    arrived = cross(first.group, TrajectoryGroup).trajectories[1]
    assert (len(arrived), arrived.trained_units) == (3, 3)
    np.testing.assert_array_equal(arrived.columns["tokens"], sent.columns["tokens"])


def test_a_column_that_is_no_array_is_refused() -> None:
    head, _, _ = Packer().pack(Kind.REPLY, 1, "", {"x": 1})
    unpacker = Unpacker()
    with pytest.raises(ValueError, match="Columns"):
        unpacker.payload(unpacker.message(memoryview(head)), Columns, memoryview(b""))
