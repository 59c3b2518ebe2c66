"""What AReaL's keys mean here."""

from __future__ import annotations

import pytest

GROUPED = "actor: {reward_norm: {mean_level: group, std_level: group}}\n"


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("train_dataset: {batch_size: 16}\ngconfig: {n_samples: 4}", "training.batch_size", 64),
        ("gconfig: {n_samples: 4}", "objective.group_size", 4),
        ("rollout: {max_head_offpolicyness: 4}", "pipeline.max_staleness", 4),
        ("seed: 1", "pipeline.max_staleness", 0),
        ("gconfig: {greedy: true, temperature: 1.0}", "inference.sampling.temperature", 0.0),
        ("gconfig: {top_k: 100000000}", "inference.sampling.top_k", 0),
        ("allocation_mode: sglang:d4p1t1+d8p1t1", "resources.train.num_gpus", 8),
        ("allocation_mode: sglang:d4p1t1+d8p1t1", "resources.infer.num_gpus", 4),
        ("allocation_mode: vllm:d2t4+fsdp:d4c2", "resources.train.parallel", {"dp": 4, "sp": 2}),
        ("allocation_mode: vllm:d2t4+fsdp:d4c2", "resources.infer.parallel", {"dp": 2, "tp": 4}),
        ("allocation_mode: vllm:d2t4+fsdp:d4c2", "inference.type", "vllm"),
        ("allocation_mode: vllm:d4|fsdp:d4", "placement", "colocated"),
        ("allocation_mode: vllm:d4|fsdp:d4", "inference.type", "vllm"),
        (
            "rollout: {backend: 'vllm:d2', max_concurrent_rollouts: 8}\ngconfig: {n_samples: 4}",
            "inference.type",
            "vllm",
        ),
        (
            "rollout: {backend: 'vllm:d2', max_concurrent_rollouts: 8}\ngconfig: {n_samples: 4}",
            "inference.max_concurrent",
            16,
        ),
        ("actor: {eps_clip: 0.3}", "objective.clip_high", 0.3),
        ("actor: {eps_clip: 0.2, eps_clip_higher: 0.28}", "objective.clip_high", 0.28),
        ("actor: {kl_ctl: 0.1}\nref: {path: x}", "objective.kl", 0.1),
        ("actor: {kl_ctl: 0.1}\nref: {path: x}", "objective.reference", {}),
        ("actor: {kl_ctl: 0.1}\nref: {path: x}", "objective.kl_in", "reward"),
        ("actor: {kl_ctl: 0.0}", "objective.reference", None),
        ("seed: 1", "objective.kl", 0.0),
        (GROUPED, "objective.type", "dapo"),
        (GROUPED, "objective.dynamic_sampling", False),
        ("dynamic_bs: true\n" + GROUPED, "objective.dynamic_sampling", True),
        ("actor: {adv_norm: {mean_level: batch}}", "objective.type", "reinforce++"),
        ("actor: {importance_sampling_level: sequence}", "objective.type", "gspo"),
        ("critic: {path: x}", "objective.type", "ppo"),
        ("actor: {use_decoupled_loss: true}", "objective.behaviour_cap", None),
        ("actor: {use_decoupled_loss: true, behav_imp_weight_cap: 5.0}", "objective.behaviour_excess", "mask"),
        (
            "actor: {use_decoupled_loss: true, rejection_sampling: {level: sequence, action: clamp, upper: 2.0}}",
            "objective.behaviour_level",
            "geometric",
        ),
        ("actor: {use_decoupled_loss: false}", "objective.decoupled", False),
        ("actor: {optimizer: {lr: 1e-5}}", "training.learning_rate", 1e-5),
        ("seed: 1", "training.learning_rate", 1e-3),
        ("actor: {ppo_n_minibatches: 2}", "training.updates", 2),
        ("actor: {use_lora: true, lora_rank: 16}", "model.lora.rank", 16),
        ("actor: {use_lora: false, lora_rank: 16}", "model.lora", None),
        ("stats_logger: {wandb: {mode: online}}", "trackers", ["jsonl", "wandb"]),
        ("stats_logger: {wandb: {mode: disabled}}", "trackers", ["jsonl"]),
        ("evaluator: {freq_steps: 7}", "evaluation.every", 7),
    ],
)
def test_the_value_here(meant, text, key, value):
    assert meant("areal", text + "\n", key) == value


def test_steps_are_epochs_of_whole_batches_of_a_known_data_set(meant):
    text = "total_train_epochs: 10\ntrain_dataset: {path: openai/gsm8k, batch_size: 256}\nsaver: {freq_epochs: 1}\n"
    assert meant("areal", text, "training.max_steps") == 10 * (7473 // 256)
    assert meant("areal", text, "checkpoint.every") == 7473 // 256


def test_without_the_number_of_tasks_the_steps_are_lost_and_with_it_known(meant, lost):
    text = "total_train_epochs: 2\ntrain_dataset: {path: my/data, batch_size: 8}\n"
    assert "total_train_epochs" in lost("areal", text)
    assert meant("areal", text, "training.max_steps", tasks=83) == 20


def test_a_share_of_warm_up_is_a_number_of_steps(meant):
    text = "total_train_steps: 200\nactor: {optimizer: {warmup_steps_proportion: 0.05}}\n"
    assert meant("areal", text, "training.optimizer.warmup_steps") == 10


@pytest.mark.parametrize("key", ["m2_threshold: 0.1", "c_clip: 3.0", "reward_scaling: 5.0", "use_sapo_loss: true"])
def test_what_has_no_counterpart_is_lost(lost, key):
    assert lost("areal", f"actor: {{{key}}}\n") >= {f"actor.{key.partition(':')[0]}"}


def test_what_is_off_there_is_not_lost(lost):
    text = "total_train_steps: 5\nactor: {m2_threshold: null, c_clip: null, reward_scaling: 1.0, reward_bias: 0.0}\n"
    assert lost("areal", text) == set()


def test_megatron_becomes_the_backend_that_shards_and_is_reported(meant, lost):
    text = "actor: {backend: 'megatron:d2t2'}\n"
    assert meant("areal", text, "training.backend") == "fsdp2"
    assert "actor.backend" in lost("areal", text)


def test_without_a_validation_set_no_file_of_one_is_named(meant):
    assert meant("areal", "train_dataset: {path: a/b}", "environments.0.test_path") is None
