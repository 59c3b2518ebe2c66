"""The JSON Schema agrees with the loader as far as a schema can."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest
from ruamel.yaml import YAML

from areal_core.spec.schema import schema

SEEDS = sorted((Path(__file__).parent / "seed").glob("*.yaml"))


@pytest.fixture(scope="module")
def validator(manager) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(schema(manager))


def read(text: str):
    return YAML(typ="safe").load(text)


def test_it_is_a_schema_of_the_draft_it_names(validator):
    jsonschema.Draft202012Validator.check_schema(validator.schema)


@pytest.mark.parametrize("seed", SEEDS, ids=lambda path: path.stem)
def test_every_seed_is_valid(validator, seed):
    assert [e.message for e in validator.iter_errors(read(seed.read_text()))] == []


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "platform: cpu",
        "inference: {type: vllm, vllm: {x: 1}, torch: {kv_blocks: 3}}",
        "model: {type: tiny, hidden_size: 4, lora: {rank: 2}}",
        "model: {type: moe, num_experts: 8}",
        "objective: {clip: 0.1}",
        "objective: sft",
        "weights: {type: auto, verify: false}",
        "resources: {train: {parallel: dp}, infer: {parallel: {dp: 2}}}",
        "environments: [gsm8k, {type: humaneval, any: 1}, {type: gsm8k, reward: {type: math, timeout: 2}}]",
        "training: {learning_rate: '${env:RATE:-1e-5}', optimizer: {betas: [0.9, 0.99]}}",
        "extends: a.yaml",
        "extends: [a.yaml, b.yaml]",
        "stages: [{name: a, objective: {group_size: 2}, training: {max_steps: 3}}]",
        "pipeline: {queue_size: auto}",
        "pipeline: {queue_size: 4}",
    ],
)
def test_what_loads_is_valid(validator, text):
    assert [e.message for e in validator.iter_errors(read(text))] == []


@pytest.mark.parametrize(
    "text",
    [
        "trainning: {}",
        "training: {learning_rte: 1}",
        "training: {batch_size: 0}",
        "training: {batch_size: 'x'}",
        "training: {amp: {dtype: bf61}}",
        "inference: {torch: {kv_block: 1}}",
        "inference: torhc",
        "model: {type: tiny, hidden: 4}",
        "model: {type: tiny, hidden_size: 1}",
        "objective: {zzz: 0.1}",
        "environments: gsm8k",
        "stages: [{name: a, zzz: 1}]",
        "apiVersion: areal/v9",
        "training: {optimizer: {betas: [0.9]}}",
    ],
)
def test_what_does_not_load_is_not_valid(validator, text):
    assert list(validator.iter_errors(read(text)))


def test_every_key_has_a_description_default_and_bounds(validator):
    training = validator.schema["$defs"]["trainer.learning_rate"]
    assert training["description"] == "Before warm-up and decay."
    assert training["default"] == 1e-5
    assert training["anyOf"][0] == {"type": "number", "exclusiveMinimum": 0}


def test_an_installed_components_options_are_described(validator):
    block = validator.schema["$defs"]["engine.torch"]
    assert block["properties"]["kv_blocks"]["description"] == "Blocks."
    assert block["additionalProperties"] is False
