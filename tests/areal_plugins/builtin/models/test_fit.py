"""Sizes of a model against the devices it is spread over."""

from __future__ import annotations

import json

import pytest
from attrs import evolve

from areal_core.spec.model import PoolSpec, ResourcesSpec, Spec
from areal_plugins import CheckContext
from areal_plugins.builtin.models import HfOptions, TinyOptions, check_hf, check_tiny
from areal_plugins.builtin.models.fit import misfits, sizes_of


def spread(over: str = "infer", expert: str | None = None, **axes: int) -> Spec:
    devices = 1
    for size in axes.values():
        devices *= size
    resources = ResourcesSpec(**{over: PoolSpec(num_gpus=devices, parallel=axes)})
    return evolve(Spec(), resources=resources, parallel={"expert": expert} if expert else {})


def found(spec: Spec, **sizes: int) -> list[tuple[str, str]]:
    return [(f.code, f.dotted) for f in misfits(spec, sizes)]


@pytest.mark.parametrize("pool", ["train", "infer"])
def test_heads_divide_over_tensor_parallel_devices(pool):
    assert found(spread(pool, tp=4), heads=6) == [("heads-not-divisible", f"resources.{pool}.parallel.tp")]
    assert found(spread(pool, tp=3, dp=2), heads=6, kv_heads=3) == []


def test_key_value_heads_may_be_copied_but_not_cut():
    assert found(spread(tp=4), heads=8, kv_heads=2) == []
    assert found(spread(tp=6), heads=12, kv_heads=4) == [("heads-not-divisible", "resources.infer.parallel.tp")]


def test_experts_divide_over_the_axis_that_they_lie_on():
    assert found(spread("train", ep=4), experts=6) == [("experts-not-divisible", "resources.train.parallel.ep")]
    assert found(spread("train", "dp", dp=4), experts=6) == [("experts-not-divisible", "parallel.expert")]
    assert found(spread("train", "dp", dp=4), experts=128) == []


def test_what_is_not_known_fits():
    assert found(spread(tp=4)) == []


def test_the_tiny_model_and_a_directory_are_checked(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"num_attention_heads": 6, "num_local_experts": 8}))
    context = CheckContext(spread(tp=4), HfOptions(path=str(tmp_path)), ("model",))
    assert [f.code for f in check_hf(context)] == ["heads-not-divisible"]
    context = CheckContext(spread(tp=4), TinyOptions(), ("model",))
    assert [f.code for f in check_tiny(context)] == ["heads-not-divisible"]


@pytest.mark.parametrize(
    ("config", "sizes"),
    [
        ('{"num_attention_heads": 6, "num_key_value_heads": 2}', {"heads": 6, "kv_heads": 2}),
        ('{"text_config": {"num_attention_heads": 6}, "num_experts": 4}', {"heads": 6}),
        ('{"num_attention_heads": "6"}', {}),
        ("[]", {}),
        ("{", {}),
    ],
)
def test_sizes_are_read_from_the_directory(tmp_path, config, sizes):
    (tmp_path / "config.json").write_text(config)
    assert sizes_of(tmp_path) == sizes
    assert sizes_of(tmp_path / "gone") == {}
