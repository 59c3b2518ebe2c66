"""What verl's keys mean here."""

from __future__ import annotations

import pytest

A, R = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
GRPO = "algorithm.adv_estimator: grpo\n"


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        (f"data.train_batch_size: 64\n{R}.n: 8", "training.batch_size", 512),
        (f"data.train_batch_size: 64\n{A}.ppo_mini_batch_size: 16", "training.updates", 4),
        (f"{R}.n: 8", "objective.group_size", 8),
        ("trainer.total_training_steps: 40", "training.max_steps", 40),
        (GRPO, "objective.type", "dapo"),
        (GRPO, "objective.scale", "group"),
        (f"{GRPO}algorithm.norm_adv_by_std_in_grpo: false", "objective.scale", "none"),
        (f"{GRPO}{A}.loss_agg_mode: seq-mean-token-mean", "objective.type", "grpo"),
        (f"{GRPO}{A}.loss_agg_mode: seq-mean-token-sum-norm", "objective.type", "dr-grpo"),
        (f"{GRPO}{A}.policy_loss.loss_mode: gspo", "objective.type", "gspo"),
        ("algorithm.adv_estimator: gae", "objective.type", "ppo"),
        ("algorithm.adv_estimator: gae", "objective.value_clip", 0.5),
        ("algorithm.adv_estimator: gae", "objective.critic.learning_rate", 1e-5),
        ("algorithm.adv_estimator: reinforce_plus_plus_baseline", "objective.baseline", "group"),
        (f"{GRPO}algorithm.filter_groups.enable: true", "objective.dynamic_sampling", True),
        (f"{GRPO}{A}.clip_ratio: 0.1", "objective.clip_low", 0.1),
        (f"{GRPO}{A}.clip_ratio: 0.1\n{A}.clip_ratio_high: 0.28", "objective.clip_high", 0.28),
        (f"{GRPO}{A}.use_kl_loss: true", "objective.kl", 0.001),
        (f"{GRPO}{A}.use_kl_loss: true", "objective.kl_estimator", "k3"),
        (f"{GRPO}{A}.use_kl_loss: true\n{A}.kl_loss_type: mse", "objective.kl_estimator", "k2"),
        (f"{GRPO}algorithm.use_kl_in_reward: true\nalgorithm.kl_ctrl.kl_coef: 0.3", "objective.kl", 0.3),
        (f"{GRPO}algorithm.use_kl_in_reward: true", "objective.kl_in", "reward"),
        (GRPO, "objective.kl", 0.0),
        (GRPO, "objective.reference", None),
        (f"{GRPO}algorithm.rollout_correction.rollout_is: sequence", "objective.behaviour_level", "sequence"),
        (f"{GRPO}algorithm.rollout_correction.rollout_is: token", "objective.behaviour_cap", 2.0),
        ("algorithm.rollout_correction.bypass_mode: true", "objective.decoupled", False),
        ("seed: 1", "placement", "colocated"),
        ("trainer.nnodes: 2", "executor", "ray"),
        ("trainer.nnodes: 2", "resources.infer.num_nodes", 2),
        (f"{R}.tensor_model_parallel_size: 4", "resources.infer.parallel", {"dp": 2, "tp": 4}),
        (f"{A}.ulysses_sequence_parallel_size: 8", "resources.train.parallel", {"sp": 8}),
        ("trainer.device: npu", "platform", "npu"),
        (f"{R}.name: sglang", "inference.sglang.mem_fraction_static", 0.5),
        (f"{R}.name: sglang", "inference.vllm", None),
        (f"{R}.name: vllm\n{R}.max_model_len: 99", "inference.vllm.max_model_len", 99),
        (f"{A}.optim.clip_grad: 0.5", "training.grad_clip", 0.5),
        (f"{A}.optim.clip_grad: 0.5\n{A}.grad_clip: 2.0", "training.grad_clip", 2.0),
        (f"{R}.top_k: -1", "inference.sampling.top_k", 0),
        (f"{R}.val_kwargs.temperature: 0.5", "evaluation.sampling.temperature", 0.5),
        ("trainer.save_freq: -1", "checkpoint.every", None),
        ("trainer.test_freq: 5", "evaluation.every", 5),
        (f"{A}.optim.lr_warmup_steps: 9", "training.optimizer.warmup_steps", 9),
        (f"{A}.fsdp_config.model_dtype: bf16", "training.amp.enabled", False),
        ("seed: 1", "training.amp.enabled", True),
        ("data.train_files: a/b.parquet", "environments.0.path", "a/b.jsonl"),
    ],
)
def test_the_value_here(meant, text, key, value):
    text = f"trainer.project_name: p\n{text}\n".replace("seed: 1\n", "")
    assert meant("verl", text, key) == value


def test_the_warm_up_is_a_share_of_all_updates(meant):
    text = (
        f"trainer.total_training_steps: 50\n{A}.optim.lr_warmup_steps_ratio: 0.1\n"
        f"data.train_batch_size: 64\n{A}.ppo_mini_batch_size: 16\n"
    )
    assert meant("verl", text, "training.optimizer.warmup_steps") == 20


def test_epochs_are_steps_once_the_tasks_are_known(meant, lost):
    text = "trainer.total_epochs: 3\ndata.train_batch_size: 64\ndata.train_files: x.parquet\n"
    assert "trainer.total_epochs" in lost("verl", text)
    assert meant("verl", text, "training.max_steps", tasks=1000) == 3 * 15


@pytest.mark.parametrize(
    "key",
    [
        f"{A}.ppo_epochs: 2",
        f"{A}.clip_ratio_c: 3.0",
        f"{A}.fsdp_config.param_offload: true",
        "data.filter_overlong_prompts: true",
        "reward_model.enable: true",
        "trainer.logger: [swanlab]",
        "data.train_files: [a.parquet, b.parquet]",
    ],
)
def test_what_has_no_counterpart_is_lost(lost, key):
    assert key.partition(":")[0] in lost("verl", f"{key}\n")


def test_a_divergence_in_loss_and_reward_is_carried_over_in_part(meant, lost):
    text = f"{GRPO}{A}.use_kl_loss: true\nalgorithm.use_kl_in_reward: true\n"
    assert meant("verl", text, "objective.kl_in") == "loss"
    assert "algorithm.use_kl_in_reward" in lost("verl", text)
