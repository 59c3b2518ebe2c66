from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import evolve

from areal_core.data import WeightOffer, WeightVersion
from areal_plugins import TransportError
from areal_plugins.builtin.transports.memory import MemoryTransport

Make = Callable[..., Any]
V1, V2 = WeightVersion(0, 1), WeightVersion(0, 2)


def refuse(directory: Path) -> None:
    raise AssertionError("memory needs no directory")


def publish(trainer: MemoryTransport, version: WeightVersion, **weights: torch.Tensor) -> WeightOffer:
    return trainer.publish(version, iter(weights.items()), refuse)


@pytest.fixture
def trainer(make: Make) -> MemoryTransport:
    return make("memory", "trainer")


@pytest.fixture
def engine(make: Make) -> MemoryTransport:
    return make("memory", "engine")


def test_tensors_are_copies_without_gradient(trainer: MemoryTransport, engine: MemoryTransport) -> None:
    weight = torch.nn.Parameter(torch.ones(4))
    ((_, tensor),) = engine.receive(publish(trainer, V1, weight=weight)).tensors()
    assert tensor.data_ptr() != weight.data_ptr()
    assert not tensor.requires_grad


def test_a_released_version_gives_its_memory_to_a_later_one(trainer: MemoryTransport, engine: MemoryTransport) -> None:
    places = set()
    for step in range(6):
        offer = publish(trainer, WeightVersion(0, step), weight=torch.full((9,), float(step)))
        ((_, tensor),) = engine.receive(offer).tensors()
        places.add(tensor.data_ptr())
        trainer.release(WeightVersion(0, step - 1))
    assert len(places) == 2


def test_a_source_of_a_released_version_yields_nothing(trainer: MemoryTransport, engine: MemoryTransport) -> None:
    source = engine.receive(publish(trainer, V1, weight=torch.ones(3)))
    trainer.release(V1)
    publish(trainer, V2, weight=torch.zeros(3))
    with pytest.raises(TransportError, match=r"version 0\.1 was released"):
        next(source.tensors())


def test_an_engine_in_another_process_is_told_what_to_use(trainer: MemoryTransport, engine: MemoryTransport) -> None:
    offer = publish(trainer, V1, weight=torch.ones(3))
    elsewhere = evolve(offer, payload=offer.payload | {"process": -1})
    with pytest.raises(TransportError, match="use shm between processes, disk between hosts"):
        engine.receive(elsewhere)


def test_two_trainers_do_not_see_each_other(make: Make, engine: MemoryTransport) -> None:
    offers = [publish(make("memory", "trainer"), V1, weight=torch.full((2,), float(i))) for i in range(2)]
    found = [tensor[0].item() for offer in offers for _, tensor in engine.receive(offer).tensors()]
    assert found == [0.0, 1.0]
