from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from areal_plugins.builtin.transports.checksum import checksum

SIZES = [0, 1, 7, 8191, 8192, 8193, 3 * 8192, 3 * 8192 + 5]


def some_bytes(size: int) -> np.ndarray:
    return np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)


@pytest.mark.parametrize("size", SIZES)
def test_equal_bytes_have_equal_checksums(size: int) -> None:
    assert checksum(some_bytes(size)) == checksum(some_bytes(size).copy())


@given(size=st.sampled_from(SIZES[1:]), place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_any_flipped_bit_is_seen(size: int, place: float, bit: int) -> None:
    data = some_bytes(size)
    changed = data.copy()
    changed[int(place * size)] ^= np.uint8(1 << bit)
    assert checksum(data) != checksum(changed)


@given(st.data())
def test_swapped_pieces_are_seen(data: st.DataObject) -> None:
    original = some_bytes(8 * 8192)
    length = data.draw(st.integers(1, 8192))
    first = data.draw(st.integers(0, original.size - 2 * length))
    second = data.draw(st.integers(first + length, original.size - length))
    changed = original.copy()
    changed[first : first + length] = original[second : second + length]
    changed[second : second + length] = original[first : first + length]
    assert (checksum(original) != checksum(changed)) == bool((original != changed).any())


@pytest.mark.parametrize(("start", "stop"), [(0, 100), (4096, 12288), (8192, 16384)])
def test_a_piece_that_became_zero_is_seen(start: int, stop: int) -> None:
    data = some_bytes(4 * 8192)
    changed = data.copy()
    changed[start:stop] = 0
    assert checksum(data) != checksum(changed)


def test_it_stays_what_it_is_between_versions_and_machines() -> None:
    pattern = [(np.arange(size) * 2654435761 >> 7).astype(np.uint8) for size in (1, 8192, 8193)]
    assert [checksum(data) for data in pattern] == [3523407757, 1449703087, 3806427346]
