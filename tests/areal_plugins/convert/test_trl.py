"""What TRL's keys mean here."""

from __future__ import annotations

import pytest

BATCH = "per_device_train_batch_size: 4\ngradient_accumulation_steps: 8\nnum_generations: 8\n"


def test_a_batch_is_what_all_processes_accumulate(meant):
    assert meant("trl", BATCH, "training.batch_size") == 32
    assert meant("trl", BATCH, "training.batch_size", processes=4) == 128
    assert meant("trl", BATCH, "objective.group_size") == 8


def test_a_batch_that_is_generated_at_once_is_split_into_updates(meant):
    text = f"{BATCH}steps_per_generation: 16\nmax_steps: 100\nsave_steps: 10\n"
    assert meant("trl", text, "training.batch_size") == 64
    assert meant("trl", text, "training.updates") == 2
    assert meant("trl", text, "training.max_steps") == 50
    assert meant("trl", text, "checkpoint.every") == 5
    assert meant("trl", f"{BATCH}generation_batch_size: 64\n", "training.updates") == 2


def test_epochs_are_steps_once_the_tasks_are_known(meant, lost):
    text = f"{BATCH}num_train_epochs: 3\n"
    assert "num_train_epochs" in lost("trl", text)
    assert meant("trl", text, "training.max_steps", tasks=100) == 3 * (100 // 4)


def test_the_schedule_counts_updates(meant):
    text = f"{BATCH}steps_per_generation: 16\nmax_steps: 100\nwarmup_ratio: 0.1\n"
    assert meant("trl", text, "training.optimizer.warmup_steps") == 10
    assert meant("trl", "warmup_steps: 7", "training.optimizer.warmup_steps") == 7


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("seed: 1", "training.learning_rate", 1e-6),
        ("seed: 1", "training.optimizer.schedule", "linear"),
        ("lr_scheduler_type: constant_with_warmup", "training.optimizer.schedule", "constant"),
        ("seed: 1", "training.amp.enabled", True),
        ("bf16: false", "training.amp.enabled", False),
        ("dtype: bfloat16", "training.amp.enabled", False),
        ("fp16: true", "training.amp.dtype", "fp16"),
        ("seed: 1", "objective.type", "dapo"),
        ("seed: 1", "objective.dynamic_sampling", False),
        ("seed: 1", "objective.clip_high", 0.2),
        ("epsilon_high: 0.28", "objective.clip_high", 0.28),
        ("loss_type: grpo", "objective.type", "grpo"),
        ("loss_type: dr_grpo", "objective.type", "dr-grpo"),
        ("loss_type: cispo\nepsilon_high: 5.0", "objective.clip_high", 4.0),
        ("loss_type: grpo\nimportance_sampling_level: sequence", "objective.type", "gspo"),
        ("scale_rewards: false", "objective.scale", "none"),
        ("scale_rewards: batch", "objective.scale", "batch"),
        ("beta: 0.0", "objective.reference", None),
        ("beta: 0.1", "objective.reference", {}),
        ("use_vllm: true", "placement", "colocated"),
        ("use_vllm: true", "objective.behaviour_level", "sequence"),
        ("use_vllm: true", "objective.behaviour_excess", "mask"),
        ("use_vllm: true", "objective.behaviour_cap", 3.0),
        ("use_vllm: true\nvllm_mode: server", "placement", "disjoint"),
        ("use_vllm: false", "inference.type", "torch"),
        ("use_vllm: false", "objective.behaviour_cap", None),
        ("seed: 1", "pipeline.max_staleness", 0),
        ("seed: 1", "inference.sampling.max_new_tokens", 512),
        ("use_peft: true", "model.lora", {"rank": 16, "alpha": 32, "dropout": 0.05}),
        ("lora_r: 8", "model.lora", None),
        ("dataset_name: a/b\nreward_funcs: [my.module.score]", "environments.0.reward.path", "my.module:score"),
        ("dataset_name: openai/gsm8k\nreward_funcs: accuracy_reward", "environments.0.type", "gsm8k"),
        ("seed: 1", "evaluation.after", False),
        ("eval_strategy: steps\neval_steps: 20", "evaluation.every", 20),
        ("max_grad_norm: 0.0", "training.grad_clip", None),
    ],
)
def test_the_value_here(meant, text, key, value):
    assert meant("trl", text + "\n", key) == value


def test_a_reference_is_renewed_whole_or_not_at_all(meant, lost):
    text = "beta: 0.1\nsync_ref_model: true\nref_model_sync_steps: 64\n"
    assert "ref_model_mixup_alpha" in lost("trl", f"{text}ref_model_mixup_alpha: 0.6\n")
    assert meant("trl", f"{text}ref_model_mixup_alpha: 1.0\n", "objective.reference.every") == 64


@pytest.mark.parametrize(
    "key", ["num_iterations: 2", "delta: 4.0", "min_p: 0.1", "loss_type: sapo", "reward_weights: [1.0, 2.0]"]
)
def test_what_has_no_counterpart_is_lost(lost, key):
    assert key.partition(":")[0] in lost("trl", f"{key}\n")
