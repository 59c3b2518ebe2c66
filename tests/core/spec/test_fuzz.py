"""Whatever is written, the loader answers with an experiment or with located findings."""

from __future__ import annotations

import copy
import io
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from areal_core.spec import examine

BASE: dict[str, Any] = {
    "name": "fuzzed",
    "seed": 1,
    "model": {"type": "tiny", "hidden_size": 8, "lora": {"rank": 2}},
    "platform": "cpu",
    "executor": {"type": "local"},
    "resources": {"train": {"num_gpus": 1, "parallel": "dp"}, "infer": {"parallel": {"dp": 1}}, "rollout": {"cpus": 2}},
    "inference": {"type": "torch", "sampling": {"top_p": 0.9, "stop": ["x"]}, "torch": {"nested": {"names": ["a"]}}},
    "training": {
        "batch_size": 16,
        "learning_rate": 1e-5,
        "optimizer": {"type": "adamw", "betas": [0.9, 0.95]},
        "amp": {"enabled": True, "loss_scale": "dynamic"},
    },
    "parallel": {"expert": "dp", "other": "tp"},
    "weights": {"type": "shm", "verify": True},
    "objective": {"type": "grpo", "group_size": 8, "clip": 0.2},
    "environments": [{"name": "a", "type": "gsm8k", "weight": 0.6, "reward": "math"}, {"type": "humaneval"}],
    "pipeline": {"max_staleness": 4, "queue_size": "auto"},
    "evaluation": {"every": 20, "sampling": {"temperature": 0.0}},
    "trackers": ["jsonl", {"type": "tensorboard"}],
    "stages": [{"name": "warmup", "objective": "sft", "training": {"max_steps": 20}}, {"name": "rl"}],
    "plugins": [],
}

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["auto", "dp", "torch", "grpo", "sft", "vllm", "${env:AREAL_UNSET}", "${", "../x", "areal/v1"]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from([*BASE, "type", "backend", "extends", "apiVersion", "zzz", "name"]) | st.text(max_size=6)


@st.composite
def mutants(draw: st.DrawFn) -> dict[str, Any]:
    """The base with one to three values replaced, removed or added somewhere."""
    spec = copy.deepcopy(BASE)
    for _ in range(draw(st.integers(1, 3))):
        node: Any = spec
        while isinstance(node, dict | list) and node:
            keys = list(node) if isinstance(node, dict) else list(range(len(node)))
            key = draw(st.sampled_from(keys))
            deeper = isinstance(node[key], dict | list) and node[key] and draw(st.booleans())
            if deeper:
                node = node[key]
                continue
            mutate(draw, node, key)
            break
    return spec


def mutate(draw: st.DrawFn, node: Any, key: Any) -> None:
    action = draw(st.sampled_from(["replace", "remove", "add"]))
    if action == "replace":
        node[key] = draw(VALUES)
    elif action == "remove":
        del node[key]
    elif isinstance(node, dict):
        node[draw(KEYS)] = draw(VALUES)
    else:
        node.append(draw(VALUES))


def dump(spec: Any) -> str:
    stream = io.StringIO()
    YAML(typ="safe").dump(spec, stream)
    return stream.getvalue()


FIXTURES = {"suppress_health_check": [HealthCheck.function_scoped_fixture], "deadline": None}


@settings(max_examples=max(300, settings.default.max_examples), **FIXTURES)
@given(spec=mutants())
def test_a_mutant_resolves_or_has_located_findings(manager, write, spec):
    examined = examine(write(dump(spec)), (), manager)
    assert examined.experiment is not None or examined.findings
    for finding in examined.findings:
        assert finding.location is not None
        assert finding.location.line >= 1
        assert finding.message
    if examined.errors:
        assert examined.experiment is None


@settings(max_examples=max(50, settings.default.max_examples // 4), **FIXTURES)
@given(key=st.from_regex(r"[a-z_]{3,12}", fullmatch=True), section=st.sampled_from([None, "training", "objective"]))
def test_a_key_that_does_not_exist_is_never_accepted(manager, write, key, section):
    spec = copy.deepcopy(BASE)
    target = spec if section is None else spec[section]
    known = {*target, "stages", "extends", "plugins", "supervision", "checkpoint", "placement", "kl", "reference"}
    known |= {"critic", "python", "updates", "grad_clip", "lag_decay", "max_steps", "deepspeed", "plain"}
    if key in known:
        return
    target[key] = 1
    errors = examine(write(dump(spec)), (), manager).errors
    assert any(f.code == "unknown-key" and f.message.endswith(key) for f in errors)


@settings(max_examples=max(200, settings.default.max_examples), **FIXTURES)
@given(text=st.text(alphabet=st.sampled_from("ab:-[]{}\"'#&*!|>%@`\n\t ?,$\u00e9\x00<"), max_size=40))
def test_any_text_is_answered(manager, write, text):
    examined = examine(write(text), (), manager)
    assert examined.experiment is not None or examined.findings


@settings(max_examples=max(50, settings.default.max_examples // 4), **FIXTURES)
@given(
    override=st.one_of(
        st.text(max_size=20),
        st.tuples(
            st.sampled_from(["training.max_steps", "environments.0", "model", "stages.0.x", "a.b.c"]), VALUES
        ).map(lambda pair: f"{pair[0]}={pair[1]}"),
    )
)
def test_any_override_is_answered(manager, write, override):
    examined = examine(write(dump(BASE)), (override,), manager)
    for finding in examined.findings:
        assert finding.location is not None
