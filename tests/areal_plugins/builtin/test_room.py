"""Answers of full length leave room for a prompt."""

from __future__ import annotations

import pytest
from attrs import evolve

from areal_core.spec.model import InferenceSpec, SamplingSpec, Spec
from areal_plugins import CheckContext
from areal_plugins.builtin.engine import TorchEngineOptions, check
from areal_plugins.builtin.models import TinyOptions, check_tiny


def context(options: object, longest: int) -> CheckContext:
    spec = evolve(Spec(), inference=InferenceSpec(sampling=SamplingSpec(max_new_tokens=longest)))
    return CheckContext(spec, options, ("here",))


@pytest.mark.parametrize(("longest", "codes"), [(99, []), (100, ["answers-too-long"])])
def test_an_answer_leaves_room_in_model_and_cache(longest, codes):
    assert [f.code for f in check_tiny(context(TinyOptions(max_positions=100), longest))] == codes
    assert [f.code for f in check(context(TorchEngineOptions(max_model_len=100), longest))] == codes
    assert [f.code for f in check(context(TorchEngineOptions(kv_tokens=100), longest))] == codes
    assert [f.code for f in check(context(TorchEngineOptions(), longest))] == []
