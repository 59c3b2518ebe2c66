"""Values that do not go together, whatever they are by themselves."""

from __future__ import annotations

import pytest

from areal_core.errors import Severity


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ("training: {batch_size: 30}", "batch-not-groups", "5:24"),
        ("objective: {group_size: 1}", "group-too-small", "5:25"),
        ("training: {batch_size: 8, updates: 9}", "too-many-updates", "5:36"),
        ("training: {batch_size: 64}\npipeline: {queue_size: 7}", "queue-too-small", "6:24"),
        ("weights: {every: 4}\npipeline: {max_staleness: 2}", "weights-too-rare", "5:18"),
        ("evaluation: {every: 101, before: false, after: false}", "no-evaluation", "5:21"),
        ("inference: {sampling: {min_new_tokens: 300}}", "lengths-crossed", "5:40"),
        (
            "resources: {train: {num_gpus: 6, num_nodes: 2, gpus_per_node: 4}}\nexecutor: cluster",
            "contradictory-sizes",
            "5:31",
        ),
        ("resources: {infer: {num_gpus: 6, gpus_per_node: 4}}\nexecutor: cluster", "contradictory-sizes", "5:31"),
        ("resources: {infer: {num_gpus: 5, num_nodes: 2}}\nexecutor: cluster", "contradictory-sizes", "5:31"),
        ("resources: {train: {parallel: {dp: 2, tp: 2}}}", "wrong-world-size", "5:21"),
        ("resources: {train: {num_gpus: 4, parallel: {dp: 2}}}", "wrong-world-size", "5:34"),
        ("resources: {train: {parallel: {dp: 0}}}", "out-of-range", "5:36"),
        ("resources: {train: {parallel: zp}}", "unknown-axis", "5:31"),
        ("resources: {infer: {num_gpus: 2, parallel: tp}}", "unsupported-axis", "5:44"),
        ("parallel: {expert: zp}", "unknown-axis", "5:20"),
        ("parallel: {other: pp}\nresources: {train: {num_gpus: 2}}", "unsupported-axis", "5:19"),
        ("parallel: {experts: dp}", "unknown-key", "5:21"),
        ("placement: colocated\nresources: {train: {num_gpus: 2}}", "unequal-pools", "5:12"),
        ("executor: local\nresources: {train: {num_nodes: 2}}", "too-many-nodes", "5:11"),
        ("executor: inline\nresources: {train: {num_gpus: 2}}", "too-many-devices", "5:11"),
        ("executor: inline\ntraining: {python: /bin/sh}", "one-interpreter", "6:20"),
        ("training: {backend: plain}\nmodel: {type: tiny, lora: {}}", "no-lora", "6:21"),
        ("training: {backend: plain}\nobjective: ppo", "no-critic", "6:12"),
        ("training: {backend: plain}\nobjective: {reference: {}}", "no-reference", "6:13"),
        ("objective: {critic: {}}", "idle-section", "5:13"),
        ("training: {optimizer: sparse}", "wrong-optimizer", "5:23"),
        ("model: {type: tiny, dtype: bfloat16}\ntraining: {amp: {enabled: true}}", "amp-without-effect", "6:27"),
        ("training: {amp: {enabled: true, loss_scale: 8}}", "amp-without-effect", "5:45"),
        ("platform: cpu\ntraining: {amp: {enabled: true, dtype: fp16}}", "wrong-precision", "6:40"),
        ("trackers: [jsonl, jsonl]", "duplicate-name", "5:19"),
        ("inference: {sampling: {stop: [x, '']}}", "bad-value", "5:34"),
    ],
)
def test_a_contradiction_is_an_error_where_it_is_written(complete, errors, text, code, place):
    above = complete.replace("model: {type: tiny}", "#") if "model:" in text else complete
    assert errors(above + text) == [f"{code} at {place}"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("resources: {train: {num_nodes: 2}}", "too-many-nodes"),
        ("training: {amp: {enabled: true, dtype: fp16}}", "wrong-precision"),
        ("inference: {serve: {port: 8000}}", "idle-section"),
        ("placement: colocated", "idle-section"),
    ],
)
def test_what_may_be_right_elsewhere_is_unavailable(check, complete, text, code):
    (finding,) = check(complete + text).findings
    assert (finding.code, finding.severity) == (code, Severity.UNAVAILABLE)


@pytest.mark.parametrize(
    "text",
    [
        "parallel: {expert: dp, other: tp}",
        "resources: {train: {parallel: tp}}",
        "resources: {train: {num_gpus: 4, parallel: {dp: 2, tp: 2}}}",
        "resources: {infer: {num_gpus: 1, parallel: pp}}",
        "training: {max_steps: 2, optimizer: {warmup_steps: 20}}\nevaluation: {every: 50}",
        "training: {batch_size: 64}\npipeline: {queue_size: 8}",
        "pipeline: {max_staleness: 1, queue_size: 8}",
        "objective: sft\npipeline: {max_staleness: 0, queue_size: 500}",
        "evaluation: {every: 101, before: false}",
        "evaluation: {every: 100, before: false, after: false}",
        "pipeline: {queue_size: 25}\nstages: [{name: a}, {name: b, training: {batch_size: 64}}]",
        "evaluation: {every: 150, before: false, after: false}\nstages: [{name: a}, {name: b}]",
        "executor: cluster\nresources: {train: {num_nodes: 2}, infer: {num_nodes: 2}}\nweights: net",
        "objective: ppo",
    ],
)
def test_what_fits_is_left_alone(errors, complete, text):
    assert [e for e in errors(complete + text) if "no-mechanism" not in e] == []


def test_every_axis_without_devices_is_named(complete, errors):
    text = "resources: {train: {parallel: {dp: 0, tp: -1}}}"
    assert errors(complete + text) == ["out-of-range at 5:36", "out-of-range at 5:43"]


def test_a_value_that_is_wrong_by_itself_contradicts_nothing(complete, errors):
    assert errors(complete + "training: {batch_size: '30'}") == ["bad-type at 5:24"]
    assert errors(complete + "objective: {group_size: 0}\ntraining: {batch_size: 30}") == ["out-of-range at 5:25"]


def test_components_count_in_one_unit(errors):
    assert errors("model: tiny\nenvironments: [steps]") == ["unit-mismatch at 2:16"]


def test_a_components_own_check_is_located(errors, complete):
    assert errors(complete + "objective: {kl: 0.1}") == ["kl-without-reference at 5:17"]
    assert errors(complete + "objective: {kl: 0.1, reference: {}}") == []


def test_a_contradiction_is_located_in_the_file_that_writes_the_value(check, complete, write):
    write(f"{complete}training: {{batch_size: 30}}\n", "base.yaml")
    (finding,) = check("extends: base.yaml\nobjective: {group_size: 4}\n").errors
    assert (finding.code, str(finding.location)) == ("batch-not-groups", "base.yaml:5:24")
