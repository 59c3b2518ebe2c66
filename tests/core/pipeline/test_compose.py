from __future__ import annotations

from pathlib import Path

import pytest

from areal_core.pipeline import compose as module
from areal_core.pipeline.compose import compose
from areal_core.spec import load_experiment

SPEC = """
name: composed
seed: 7
model: {type: mock, lora: {rank: 4}}
platform: mock
executor: mock
resources: {train: {num_gpus: 1}, infer: {num_gpus: 3}, rollout: {cpus: 2}}
inference: {type: mock, max_concurrent: 16, sampling: {temperature: 0.7, top_p: 0.9, max_new_tokens: 99, stop: ["\\n"]}}
training: {backend: mock, batch_size: 16, max_steps: 5, optimizer: {type: mock, warmup_steps: 2, schedule: cosine}}
weights: {type: mock, bucket_mib: 2}
objective: {type: grpo, group_size: 4}
environments: [{name: a, type: mock, reward: mock, weight: 2}]
stages:
  - {name: imitate, objective: sft, training: {max_steps: 3}}
  - {name: reinforce}
"""


@pytest.fixture
def composed(tmp_path, plugins, monkeypatch):
    def composed(*overrides, spec=SPEC):
        monkeypatch.setattr(module, "cores", lambda: 8)
        (tmp_path / "spec.yaml").write_text(spec)
        return compose(load_experiment(tmp_path / "spec.yaml", overrides, plugins), tmp_path / "run", debug=False)

    return composed


def test_stages_count_their_steps_over_the_whole_run(composed):
    assert [(s.name, s.first, s.last) for s in composed().stages] == [("imitate", 0, 3), ("reinforce", 3, 8)]
    assert composed().steps == 8


def test_demonstrations_are_single_and_of_temperature_one(composed):
    imitate, reinforce = composed().stages
    assert (imitate.group_size, imitate.order.temperature) == (1, 1.0)
    assert (reinforce.group_size, reinforce.order.temperature) == (4, 0.7)


def test_the_schedule_counts_the_stages_own_steps(composed):
    order = composed().stages[1].order
    assert (order.total_steps, order.warmup_steps, order.schedule) == (5, 2, "cosine")


def test_evaluation_is_greedy_with_the_limits_of_inference(composed):
    sampling = composed().stages[1].evaluation_sampling
    assert (sampling.temperature, sampling.top_p, sampling.max_new_tokens, sampling.stop) == (0.0, 1.0, 99, ("\n",))


def test_evaluation_may_sample_otherwise(composed):
    sampling = composed("evaluation.sampling={temperature: 0.3}").stages[1].evaluation_sampling
    assert sampling.temperature == 0.3


def test_every_replica_is_an_engine_and_every_cpu_a_rollout_worker(composed):
    composition = composed()
    assert [worker.name for worker in composition.engines] == ["engine-0", "engine-1", "engine-2"]
    assert [worker.name for worker in composition.rollouts] == ["rollout-0", "rollout-1"]
    assert [worker.name for worker in composition.trainers()] == ["trainer"]


def test_cores_are_shared_by_the_workers_that_compute(composed):
    assert {worker.place.threads for worker in (*composed().engines, *composed().trainers())} == {2}
    assert {worker.place.threads for worker in composed().rollouts} == {1}


def test_paths_are_in_the_run_directory(composed, tmp_path):
    composition = composed()
    plan = composition.engine_plan(composition.engines[1], "/model", None)
    assert plan.work == str(tmp_path / "run" / "work" / "engine-1")
    assert plan.transport.bucket_bytes == 2 << 20


def test_adapters_are_scaled_by_twice_their_rank(composed):
    composition = composed()
    lora = composition.trainer_plan(composition.trainers()[0], "/model").lora
    assert (lora.rank, lora.alpha) == (4, 8.0)


def test_models_are_cached_where_the_environment_says(composed, monkeypatch):
    monkeypatch.setenv("AREAL_CACHE", "/cache")
    assert composed().model.cache == str(Path("/cache/models"))


def test_local_plugins_go_to_every_worker(composed, tmp_path):
    (tmp_path / "mine.py").write_text("")
    composition = composed(spec=SPEC + "plugins: [./mine.py]\n")
    assert composition.stages[0].environments[0].environment.files == (str(tmp_path / "mine.py"),)


def test_a_filter_is_made_only_for_objectives_that_have_one(composed):
    assert composed().stages[1].filter is None
    assert composed("objective={type: dapo, group_size: 4}").stages[1].filter is not None


def test_ranks_of_a_trainer_meet_where_none_has_met_before_in_an_earlier_run_of_the_directory_neither(composed):
    composition, resumed = composed("resources.train={num_gpus: 2}"), composed("resources.train={num_gpus: 2}")
    lives = [composition.trainers(), composition.trainers(), resumed.trainers()]
    assert [worker.place.rank for worker in lives[0]] == [0, 1]
    assert all(first.place.rendezvous == second.place.rendezvous for first, second in lives)
    assert len({first.place.rendezvous for first, _ in lives}) == 3
