from hypothesis import given
from hypothesis import strategies as st

from areal_core.workers.seeds import derive

ints = st.integers(min_value=-(2**63), max_value=2**64 - 1)


@given(ints, st.lists(ints, max_size=4))
def test_a_seed_is_a_63_bit_number(seed: int, keys: list[int]) -> None:
    assert 0 <= derive(seed, *keys) < 2**63


def test_splitmix64_gives_the_published_first_output_of_seed_zero() -> None:
    assert derive(0, 0) == 0xE220A8397B1DCDAF >> 1


def test_neighbouring_streams_do_not_collide() -> None:
    streams = {derive(seed, member, turn) for seed in range(20) for member in range(20) for turn in range(20)}
    assert len(streams) == 8000


def test_the_order_of_keys_matters() -> None:
    assert derive(7, 1, 2) != derive(7, 2, 1)
