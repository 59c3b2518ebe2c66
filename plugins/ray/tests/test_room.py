"""What workers need, and whether a cluster can ever give it."""

from __future__ import annotations

import pytest
from areal_plugin_ray import RayOptions
from areal_plugin_ray.records import Machine
from areal_plugin_ray.room import bundle, fits, lacking, table
from hypothesis import given
from hypothesis import strategies as st

from areal_plugins.protocols import Place, WorkerSpec


def machine(address: str, **total: float) -> Machine:
    return Machine(f"node-{address}", address, total)


def worker(role: str, devices: int = 0, **resources: float) -> WorkerSpec:
    return WorkerSpec("w", role, Place(devices=tuple(range(devices))), resources=resources)


TWO = [machine("10.0.0.1", CPU=8, NPU=4), machine("10.0.0.2", CPU=8, NPU=4)]


def test_devices_have_the_names_that_ray_gives_them():
    assert bundle(worker("trainer", 1, cpu=4, cuda=1), RayOptions()) == {"CPU": 4, "GPU": 1}
    assert bundle(worker("engine", 2, cpu=4, npu=2), RayOptions()) == {"CPU": 4, "NPU": 2}
    assert bundle(worker("engine", 2, cpu=4, xpu=2), RayOptions()) == {"CPU": 4, "XPU": 2}


def test_each_device_also_takes_one_of_its_pools_own_resource():
    options = RayOptions(train_resource="train", infer_resource="infer", rollout_resource="slots")
    assert bundle(worker("trainer", 1, cpu=4, npu=1), options) == {"CPU": 4, "NPU": 1, "train": 1}
    assert bundle(worker("engine", 2, cpu=4, npu=2), options) == {"CPU": 4, "NPU": 2, "infer": 2}
    assert bundle(worker("engine", cpu=4), options) == {"CPU": 4, "infer": 1}
    assert bundle(worker("rollout", cpu=1), options) == {"CPU": 1, "slots": 1}


def test_a_worker_that_needs_nothing_takes_a_core():
    assert bundle(worker("engine"), RayOptions()) == {"CPU": 1}


def test_more_than_the_whole_cluster_has_is_told_by_resource():
    found = lacking({f"trainer-{i}": {"CPU": 1, "NPU": 1} for i in range(9)}, "PACK", TWO)
    assert found == ["9 NPU are needed, and the cluster has 8"]


def test_a_resource_that_nobody_has_is_told():
    assert lacking({"engine-0": {"GPU": 1}}, "PACK", TWO) == ["1 GPU are needed, and the cluster has 0"]


def test_a_worker_that_no_machine_can_hold_is_told_by_name():
    found = lacking({"engine-0": {"CPU": 1, "NPU": 6}}, "PACK", TWO)
    assert found == ["engine-0 needs 1 CPU, 6 NPU, which no machine has"]


def test_what_fits_is_not_objected_to():
    assert lacking({f"trainer-{i}": {"CPU": 2, "NPU": 1} for i in range(8)}, "SPREAD", TWO) == []


@pytest.mark.parametrize(
    ("strategy", "count", "words"), [("STRICT_PACK", 5, "on one machine"), ("STRICT_SPREAD", 3, "there are 2")]
)
def test_strict_strategies_can_make_it_impossible(strategy, count, words):
    workers = {f"trainer-{i}": {"NPU": 1.0} for i in range(count)}
    assert words in lacking(workers, strategy, TWO)[0]
    assert lacking(workers, "PACK", TWO) == []


def test_a_cluster_without_machines_holds_nothing():
    assert lacking({"trainer": {"CPU": 1}}, "PACK", []) == ["the cluster has no machine"]


def test_pieces_that_do_not_fit_together_are_not_sure_to_fit():
    machines = [machine("a", CPU=4), machine("b", CPU=4)]
    assert fits([{"CPU": 2}, {"CPU": 3}, {"CPU": 2}], machines)
    assert not fits([{"CPU": 3}, {"CPU": 3}, {"CPU": 2}], machines)


@given(
    st.lists(st.fixed_dictionaries({"CPU": st.integers(1, 4)}), max_size=12),
    st.lists(st.integers(1, 12), min_size=1, max_size=4),
)
def test_what_fits_is_never_objected_to(bundles, cores):
    machines = [machine(str(i), CPU=n) for i, n in enumerate(cores)]
    if fits(bundles, machines):
        assert lacking({f"w{i}": needs for i, needs in enumerate(bundles)}, "PACK", machines) == []


def test_the_table_has_a_line_a_machine_and_no_names_of_machines():
    odd = machine("10.0.0.3", **{"CPU": 2, "node:10.0.0.3": 1, "memory": 5e9, "object_store_memory": 1e9})
    assert table([*TWO, odd]).splitlines() == [
        "  machine   CPU  NPU",
        "  10.0.0.1    8    4",
        "  10.0.0.2    8    4",
        "  10.0.0.3    2    0",
    ]
