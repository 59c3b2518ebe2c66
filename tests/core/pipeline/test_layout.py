from __future__ import annotations

import pytest
from attrs import evolve

from areal_core.pipeline import layout
from areal_core.spec.model import PoolSpec, ResourcesSpec, RolloutPoolSpec, Spec


def spec(train: PoolSpec, infer: PoolSpec, **more) -> Spec:
    return evolve(Spec(), resources=ResourcesSpec(train, infer, RolloutPoolSpec(cpus=2)), **more)


@pytest.mark.parametrize(
    ("pool", "expected"),
    [
        (PoolSpec(), {"dp": 1}),
        (PoolSpec(num_gpus=4), {"dp": 4}),
        (PoolSpec(num_gpus=4, parallel="dp"), {"dp": 4}),
        (PoolSpec(num_gpus=4, parallel="tp"), {"tp": 4, "dp": 1}),
        (PoolSpec(num_nodes=2, gpus_per_node=4, parallel={"tp": 4}), {"tp": 4, "dp": 2}),
        (PoolSpec(num_gpus=8, parallel={"dp": 2, "tp": 4}), {"dp": 2, "tp": 4}),
    ],
)
def test_what_no_axis_takes_is_data_parallel(pool, expected):
    assert layout.axes(pool) == expected


def test_every_rank_has_a_device_and_every_replica_its_share():
    given = spec(PoolSpec(num_gpus=2), PoolSpec(num_gpus=4, parallel={"dp": 2, "tp": 2}))
    assert [(slot.name, slot.devices) for slot in layout.trainers(given)] == [("trainer-0", (0,)), ("trainer-1", (1,))]
    engines = layout.engines(given)
    assert [(slot.name, slot.devices) for slot in engines] == [("engine-0", (2, 3)), ("engine-1", (4, 5))]
    assert all(slot.parallel == {"tp": 2} for slot in engines)
    assert [slot.name for slot in layout.rollouts(given)] == ["rollout-0", "rollout-1"]


def test_a_single_trainer_has_no_number():
    assert [slot.name for slot in layout.trainers(spec(PoolSpec(), PoolSpec()))] == ["trainer"]


def test_colocated_engines_share_the_trainers_devices():
    given = spec(PoolSpec(num_gpus=2), PoolSpec(num_gpus=2), placement="colocated")
    assert [slot.devices for slot in layout.engines(given)] == [(0,), (1,)]
