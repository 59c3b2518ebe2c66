"""What every transport promises, on all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from areal_core.data import WeightOffer, WeightVersion
from areal_plugins import TransportError

Make = Callable[..., Any]
DTYPES = [
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.int8,
    torch.uint8,
    torch.int64,
    torch.bool,
]
V1, V2, V3 = (WeightVersion(0, step) for step in (1, 2, 3))


def random_bits(dtype: torch.dtype, shape: tuple[int, ...], seed: int = 0) -> torch.Tensor:
    """Any bits there are, NaNs with payloads among them."""
    count = torch.Size(shape).numel() * dtype.itemsize
    high = 2 if dtype is torch.bool else 256
    drawn = torch.randint(0, high, (count,), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))
    return drawn.view(dtype).view(shape)


def bits(tensor: torch.Tensor) -> tuple[torch.dtype, tuple[int, ...], bytes]:
    return tensor.dtype, tuple(tensor.shape), tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def refuse(directory: Path) -> None:
    raise AssertionError("the mechanism is tensors")


def publish(transport: Any, version: WeightVersion, weights: dict[str, torch.Tensor]) -> WeightOffer:
    return transport.publish(version, iter(weights.items()), refuse)


def arrived(transport: Any, offer: WeightOffer) -> dict[str, tuple[torch.dtype, tuple[int, ...], bytes]]:
    return {name: bits(tensor) for name, tensor in transport.receive(offer).tensors()}


@pytest.fixture
def ends(make: Make, name: str) -> tuple[Any, Any]:
    return make(name, "trainer", mechanism="tensors"), make(name, "engine", mechanism="tensors")


shapes = st.lists(st.integers(0, 7), max_size=3).map(tuple)


@given(specs=st.lists(st.tuples(st.sampled_from(DTYPES), shapes), max_size=6))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_bit_of_every_dtype_and_shape_arrives(ends: tuple[Any, Any], specs: list[Any]) -> None:
    trainer, engine = ends
    weights = {f"p{i}": random_bits(dtype, shape, seed=i) for i, (dtype, shape) in enumerate(specs)}
    offer = publish(trainer, V1, weights)
    assert arrived(engine, offer) == {name: bits(tensor) for name, tensor in weights.items()}


def test_tensors_larger_than_a_bucket_arrive(make: Make, name: str) -> None:
    trainer, engine = (make(name, side, mechanism="tensors", bucket=4096) for side in ("trainer", "engine"))
    weights = {"small": random_bits(torch.int8, (5,)), "large": random_bits(torch.float32, (101, 103))}
    assert arrived(engine, publish(trainer, V1, weights)) == {name: bits(t) for name, t in weights.items()}


def test_strides_do_not_matter(ends: tuple[Any, Any]) -> None:
    trainer, engine = ends
    base = random_bits(torch.float32, (6, 8))
    weights = {"transposed": base.t(), "strided": base[::2, 1::3], "expanded": base[:1].expand(4, 8)}
    assert arrived(engine, publish(trainer, V1, weights)) == {name: bits(t) for name, t in weights.items()}


def test_tied_weights_arrive_under_both_names(ends: tuple[Any, Any]) -> None:
    trainer, engine = ends
    shared = torch.nn.Parameter(random_bits(torch.bfloat16, (9, 4)))
    found = arrived(engine, publish(trainer, V1, {"embed": shared, "head": shared}))
    assert found == {"embed": bits(shared.detach()), "head": bits(shared.detach())}


def test_a_published_version_does_not_follow_the_trainer(ends: tuple[Any, Any]) -> None:
    trainer, engine = ends
    weight = torch.ones(8)
    offer = publish(trainer, V1, {"weight": weight})
    weight.zero_()
    assert arrived(engine, offer) == {"weight": bits(torch.ones(8))}


def test_a_version_stays_while_the_next_is_published(ends: tuple[Any, Any]) -> None:
    trainer, engine = ends
    first, second = (publish(trainer, v, {"weight": torch.full((5,), v.step)}) for v in (V1, V2))
    assert arrived(engine, first) == {"weight": bits(torch.full((5,), 1))}
    assert arrived(engine, second) == {"weight": bits(torch.full((5,), 2))}


def test_versions_follow_each_other(ends: tuple[Any, Any]) -> None:
    trainer, engine = ends
    for step in range(1, 6):
        version, weight = WeightVersion(0, step), random_bits(torch.float16, (33,), seed=step)
        assert arrived(engine, publish(trainer, version, {"weight": weight})) == {"weight": bits(weight)}
        engine.release(version)
        trainer.release(version)


def test_layouts_may_change_between_versions(ends: tuple[Any, Any]) -> None:
    trainer, engine = ends
    for step, shape in enumerate([(4,), (400, 50), (3, 3)]):
        version, weight = WeightVersion(0, step), random_bits(torch.float32, shape)
        assert arrived(engine, publish(trainer, version, {"weight": weight})) == {"weight": bits(weight)}
        trainer.release(version)


def test_a_version_published_again_replaces_itself(ends: tuple[Any, Any]) -> None:
    trainer, engine = ends
    publish(trainer, V1, {"weight": torch.zeros(3)})
    assert arrived(engine, publish(trainer, V1, {"weight": torch.ones(3)})) == {"weight": bits(torch.ones(3))}


def test_several_engines_read_one_version(make: Make, name: str) -> None:
    trainer, *engines = make(name, "trainer"), make(name, "engine"), make(name, "engine")
    offer = trainer.publish(V1, iter({"weight": torch.ones(3)}.items()), lambda d: None)
    sources = [engine.receive(offer) for engine in engines]
    assert [source.offer.version for source in sources] == [V1, V1]


def test_the_offer_names_version_transport_and_mechanism(ends: tuple[Any, Any], name: str) -> None:
    offer = publish(ends[0], V2, {"weight": torch.ones(3)})
    assert (offer.version, offer.transport, offer.mechanism) == (V2, name, "tensors")


def test_a_released_version_cannot_be_received(ends: tuple[Any, Any]) -> None:
    trainer, engine = ends
    offer = publish(trainer, V1, {"weight": torch.ones(3)})
    trainer.release(V1)
    publish(trainer, V2, {"weight": torch.zeros(3)})
    with pytest.raises(TransportError, match=r"version 0\.1"):
        engine.receive(offer)


def test_a_closed_trainer_says_so(ends: tuple[Any, Any]) -> None:
    trainer, engine = ends
    offer = publish(trainer, V1, {"weight": torch.ones(3)})
    trainer.close()
    with pytest.raises(TransportError, match=r"version 0\.1"):
        engine.receive(offer)


def test_an_offer_of_another_transport_is_refused(ends: tuple[Any, Any], name: str) -> None:
    with pytest.raises(TransportError, match=rf"{name}: version 0\.1 was published by pigeon"):
        ends[1].receive(WeightOffer(V1, "pigeon", "tensors"))


def test_a_mechanism_that_was_not_offered_is_refused(ends: tuple[Any, Any]) -> None:
    trainer, engine = ends
    source = engine.receive(publish(trainer, V1, {"weight": torch.ones(3)}))
    with pytest.raises(TransportError, match="was not published as hf-dir"):
        source.path()


def test_releasing_what_nobody_published_is_no_error(ends: tuple[Any, Any]) -> None:
    for end in ends:
        end.release(V3)


def test_close_leaves_nothing(make: Make, name: str, tmp_path: Path) -> None:
    trainer, engine = make(name, "trainer", mechanism="tensors"), make(name, "engine", mechanism="tensors")
    engine.receive(publish(trainer, V1, {"weight": torch.ones(3)}))
    publish(trainer, V2, {"weight": torch.ones(3)})
    engine.close()
    trainer.close()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert list((tmp_path / "shm").iterdir()) == []


class Interrupted(Exception):
    pass


def interrupted() -> Iterator[tuple[str, torch.Tensor]]:
    yield "first", torch.ones(3)
    raise Interrupted


def test_weights_that_stop_coming_leave_no_version_and_no_memory(ends: tuple[Any, Any], tmp_path: Path) -> None:
    trainer, engine = ends
    with pytest.raises(Interrupted):
        trainer.publish(V1, interrupted(), refuse)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert arrived(engine, publish(trainer, V1, {"weight": torch.ones(3)})) == {"weight": bits(torch.ones(3))}


def test_ranks_that_store_nothing_still_take_part(make: Make, name: str, tmp_path: Path) -> None:
    other = make(name, "trainer", mechanism="tensors", rank=1)
    weights = iter({"a": torch.ones(3), "b": torch.ones(3)}.items())
    other.publish(V1, weights, refuse)
    assert next(weights, None) is None
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_empty_weights_are_a_version(ends: tuple[Any, Any]) -> None:
    trainer, engine = ends
    assert arrived(engine, publish(trainer, V1, {})) == {}
