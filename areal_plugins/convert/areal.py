"""AReaL 1.0: the YAML of its GRPO examples.

Facts from `areal/api/cli_args.py`, `areal/api/alloc_mode.py` and `areal/trainer/ppo/actor.py` of release 1.0.4.
"""

from __future__ import annotations

import re
from typing import Any

from areal_plugins.convert import meaning
from areal_plugins.convert.table import (
    Framework,
    Lost,
    Needless,
    Noted,
    Partly,
    Rule,
    carry,
    choice,
    derive,
    drop,
    lose,
)
from areal_plugins.convert.theirs import Theirs

DEFAULTS = {
    "seed": 1,
    "total_train_epochs": 1,
    "train_dataset.batch_size": 1,
    "gconfig.n_samples": 1,
    "gconfig.max_new_tokens": 16384,
    "rollout.max_head_offpolicyness": 0,
    "actor.dtype": "bfloat16",
    "actor.ppo_n_minibatches": 4,
    "actor.eps_clip": 0.2,
    "actor.kl_ctl": 0.1,
    "actor.optimizer.lr": 1e-3,
    "actor.optimizer.weight_decay": 0.01,
    "actor.optimizer.beta1": 0.9,
    "actor.optimizer.beta2": 0.999,
    "actor.optimizer.warmup_steps_proportion": 0.001,
    "actor.use_decoupled_loss": False,
    "actor.importance_sampling_level": "token",
    "actor.weight_update_mode": "xccl",
    "dynamic_bs": False,
    "evaluator.eval_before_train": False,
    "valid_dataset.path": None,
}

# --- what several keys mean together -----------------------------------------------------------------


def _an_epoch(theirs: Theirs) -> int | None:
    known = meaning.tasks(theirs, str(theirs["train_dataset.path"] or ""))
    return meaning.epoch(known, theirs["train_dataset.batch_size"])


def _steps(theirs: Theirs) -> int | None:
    if theirs["total_train_steps"]:
        return int(theirs["total_train_steps"])
    each = _an_epoch(theirs)
    return theirs["total_train_epochs"] * each if each else None


def _batch_size(theirs: Theirs) -> Any:
    prompts, samples = theirs["train_dataset.batch_size"], theirs["gconfig.n_samples"]
    return Noted(prompts * samples, f"{prompts} prompts of {samples} samples; counts trajectories")


def _objective(theirs: Theirs) -> Any:
    """Token-level mean over the batch, whatever the advantage (`ppo_actor_loss_fn`): the weights of `dapo`."""
    if theirs.has("critic"):
        return "ppo"
    if theirs["actor.importance_sampling_level"] == "sequence":
        return Partly("gspo", "answers weigh the same in gspo, where their tokens do")
    if theirs["actor.reward_norm.mean_level"] == "group":
        return Noted("dapo", "advantages within the group, the loss a mean over the batch's tokens")
    return Noted("reinforce++", "advantages over the batch, the loss a mean over the batch's tokens")


def _name(theirs: Theirs) -> str:
    made = _objective(theirs)
    return str(made.value if isinstance(made, Noted | Partly) else made)


def _in_groups(theirs: Theirs) -> bool:
    return _name(theirs) in ("dapo", "gspo")


def _scale(theirs: Theirs) -> Any:
    if not _in_groups(theirs):
        return Needless("the objective normalizes over the batch")
    return {"group": "group", "batch": "batch"}.get(theirs["actor.reward_norm.std_level"], "none")


def _clip_high(theirs: Theirs) -> Any:
    return theirs["actor.eps_clip_higher"] or theirs["actor.eps_clip"]


def _dynamic_sampling(theirs: Theirs) -> Any:
    if _name(theirs) != "dapo":
        return Needless("only dapo replaces groups")
    if theirs["dynamic_bs"]:
        return Noted(True, "here groups are replaced until the batch is full; there it stays smaller")
    return Noted(False, "no group is replaced unless the workflow filters: see dynamic_bs")


def _cap(theirs: Theirs) -> Any:
    if not theirs["actor.use_decoupled_loss"]:
        return Needless("use_decoupled_loss is off: nothing is bounded")
    if theirs["actor.rejection_sampling.metric"] not in (None, "ratio"):
        return Lost("only the importance ratio itself is bounded; the cap is our default")
    if not theirs.has("actor.rejection_sampling") and theirs["actor.behav_imp_weight_cap"] is None:
        return Noted(None, "no rejection_sampling: weights are not bounded")
    if theirs.has("actor.rejection_sampling"):
        return theirs["actor.rejection_sampling.upper"] or 5.0
    return theirs["actor.behav_imp_weight_cap"]


def _excess(theirs: Theirs) -> Any:
    if not theirs["actor.use_decoupled_loss"]:
        return Needless("use_decoupled_loss is off: nothing is bounded")
    return "truncate" if theirs["actor.rejection_sampling.action"] == "clamp" else "mask"


def _behaviour_level(theirs: Theirs) -> Any:
    if theirs["actor.rejection_sampling.level"] != "sequence":
        return "token"
    return "sequence" if theirs["actor.rejection_sampling.agg"] == "sum" else "geometric"


def _decoupled(theirs: Theirs) -> Any:
    if theirs["actor.use_decoupled_loss"]:
        return True
    if theirs["actor.recompute_logprob"]:
        return Noted(True, "recompute_logprob without use_decoupled_loss clips against the recomputed policy")
    return False


def _kl(theirs: Theirs) -> Any:
    if not theirs.has("ref") and "actor.kl_ctl" not in theirs:
        return Noted(0.0, "there is no ref section: no divergence is measured")
    return theirs["actor.kl_ctl"]


def _has_kl(theirs: Theirs) -> bool:
    made = _kl(theirs)
    return bool(made.value if isinstance(made, Noted) else made)


def _reference(theirs: Theirs) -> Any:
    return {} if _has_kl(theirs) else Needless("kl is 0: no reference is needed")


def _kl_in(theirs: Theirs) -> Any:
    return "reward" if _has_kl(theirs) else Needless("kl is 0")


def _estimator(theirs: Theirs) -> Any:
    given = theirs["actor.kl_estimator"]
    return "k1" if given == "k1" else Lost(f"{given} in the reward has not the gradient of the divergence: k1 is used")


def _temperature(theirs: Theirs) -> Any:
    return 0.0 if theirs["gconfig.greedy"] else theirs["gconfig.temperature"]


def _schedule(given: str) -> Any:
    return given if given in ("constant", "linear", "cosine") else Lost(f"{given!r}: the rate is constant")


def _betas(theirs: Theirs) -> Any:
    return [theirs["actor.optimizer.beta1"], theirs["actor.optimizer.beta2"]]


def _evaluates(theirs: Theirs) -> bool:
    return theirs["valid_dataset.path"] is not None


def _test_path(theirs: Theirs) -> Any:
    return meaning.records(theirs["valid_dataset.path"], "test")


def _after(theirs: Theirs) -> Any:
    return Noted(_evaluates(theirs), "" if _evaluates(theirs) else "no valid_dataset")


# --- devices -----------------------------------------------------------------------------------------


def _strategy(theirs: Theirs, role: str) -> tuple[str, dict[str, int]] | None:
    """Backend and axes: of `actor.backend` or `rollout.backend`, else of `allocation_mode` (`sglang:d4+fsdp:d4`)."""
    text = theirs["actor.backend" if role == "train" else "rollout.backend"]
    if not text:
        parts = re.split(r"[+|]", str(theirs["allocation_mode"] or ""))
        engine = [part for part in parts if part.startswith(("sglang", "vllm"))]
        other = [part for part in parts if part and part not in engine]
        text = next(iter(other if role == "train" else engine), "")
    backend, _, dims = str(text).rpartition(":")
    sizes = meaning.axes(dims)
    return (re.sub(r"\[.*\]", "", backend), sizes) if sizes else None


def _backend(theirs: Theirs) -> Any:
    found = _strategy(theirs, "train")
    if not found:
        return Lost("cannot be read as BACKEND:d1t1...; our default backend is used")
    name = found[0] or "fsdp"
    return "fsdp2" if name == "fsdp" else Partly("fsdp2", f"{name} has no counterpart: fsdp2 shards, too")


def _engine(theirs: Theirs) -> Any:
    found = _strategy(theirs, "infer")
    return found[0] if found else Lost("cannot be read as ENGINE:d1t1...; our default engine is used")


def _devices(role: str) -> Any:
    def make(theirs: Theirs) -> Any:
        found = _strategy(theirs, role)
        return meaning.devices(found[1]) if found else Lost("cannot be read as NAME:d1t1...; one device is used")

    return make


def _parallel(role: str) -> Any:
    def make(theirs: Theirs) -> Any:
        found = _strategy(theirs, role)
        return found[1] if found else Lost("cannot be read as NAME:d1t1...; one device is used")

    return make


def _max_concurrent(theirs: Theirs) -> Any:
    rollouts, samples = theirs["rollout.max_concurrent_rollouts"], theirs["gconfig.n_samples"]
    if rollouts is None:
        return Needless("not set there; our default holds")
    found = _strategy(theirs, "infer")
    engines = found[1].get("dp", 1) if found else 1
    each = -(-rollouts * samples // engines)
    return Noted(each, f"{rollouts} rollouts x {samples} samples / {engines} engines")


def _placement(theirs: Theirs) -> Any:
    shared = "|" in str(theirs["allocation_mode"] or "") or theirs["rollout.scheduling_strategy.type"] == "colocation"
    return "colocated" if shared else "disjoint"


def _trackers(theirs: Theirs) -> Any:
    found = ["jsonl"]
    found += [name for name in ("wandb", "trackio") if theirs[f"stats_logger.{name}.mode"] not in (None, "disabled")]
    return [*found, "tensorboard"] if theirs["stats_logger.tensorboard.path"] else found


_ALLOCATION = ("actor.backend", "allocation_mode")
_ENGINE = ("rollout.backend", "allocation_mode")
_DATA = ("train_dataset.path",)
_MODES = ("stats_logger.wandb.mode", "stats_logger.trackio.mode", "stats_logger.tensorboard.path")
_BOUND = ("actor.rejection_sampling", "actor.behav_imp_weight_cap", "actor.use_decoupled_loss")
_LORA = "use_lora is off"


def _lora(key: str) -> Any:
    return lambda theirs: theirs[key] if theirs["actor.use_lora"] and theirs[key] else Needless(_LORA)


RULES: tuple[Rule, ...] = (
    carry("experiment_name", "name"),
    drop("trial_name", "name", "a run directory has the time in its name"),
    drop("*experiment_name", "name", "see name"),
    drop("*trial_name", "name", "see name"),
    drop("*fileroot", "name", "a run's files are in its run directory"),
    carry("seed", "seed"),
    derive(("actor.path",), "model.type", lambda _: "hf", "a directory or hub id"),
    carry("actor.path", "model.path"),
    carry("actor.dtype", "model.dtype"),
    derive(("actor.use_lora", "actor.lora_rank"), "model.lora.rank", _lora("actor.lora_rank"), "adapters"),
    derive(("actor.lora_alpha",), "model.lora.alpha", _lora("actor.lora_alpha"), "adapters"),
    derive(("actor.target_modules",), "model.lora.targets", _lora("actor.target_modules"), "adapters"),
    lose("actor.init_from_scratch", "model", "weights are always loaded from the path"),
    drop("tokenizer_path", "model", "the model's own tokenizer is used"),
    drop("actor.attn_impl", "model", "the backend chooses the attention"),
    drop("actor.disable_dropout", "model", "there is no dropout in training here, but for adapters"),
    # resources
    derive(_ALLOCATION, "resources.train.num_gpus", _devices("train"), "the axes' product"),
    derive(_ALLOCATION, "resources.train.parallel", _parallel("train"), "d, t, p, c, e are dp, tp, pp, sp, ep"),
    derive(_ENGINE, "resources.infer.num_gpus", _devices("infer"), "the axes' product"),
    derive(_ENGINE, "resources.infer.parallel", _parallel("infer"), "d, t, p are dp, tp, pp"),
    derive(("rollout.scheduling_strategy.type", "allocation_mode"), "placement", _placement, "`|` shares devices"),
    drop("cluster.n_nodes", "resources", "the pools above say how many devices are used"),
    drop("cluster.n_gpus_per_node", "resources", "the pools above say how many devices are used"),
    drop("cluster.*", "resources", "workers find each other without it; a run's files are in its run directory"),
    lose("enable_offload", "placement", "engines and trainer keep their memory"),
    drop("scheduler.*", "executor", "workers are started by the executor"),
    drop("*scheduling_spec.*", "executor", "workers are started by the executor"),
    drop("*scheduling_strategy.*", "placement", "see placement"),
    # inference
    derive(_ENGINE, "inference.type", _engine, "sglang or vllm"),
    derive(
        ("rollout.max_concurrent_rollouts",),
        "inference.max_concurrent",
        _max_concurrent,
        "rollouts x samples / engines: counts completions of each engine",
    ),
    derive(("gconfig.temperature", "gconfig.greedy"), "inference.sampling.temperature", _temperature, "0 is greedy"),
    carry("gconfig.top_p", "inference.sampling.top_p"),
    carry("gconfig.top_k", "inference.sampling.top_k", lambda k: 0 if k >= 10**8 else k, "1e8 there is off: 0"),
    carry("gconfig.max_new_tokens", "inference.sampling.max_new_tokens"),
    carry("gconfig.min_new_tokens", "inference.sampling.min_new_tokens"),
    carry("gconfig.stop", "inference.sampling.stop"),
    lose("gconfig.max_tokens", "inference", "only the answer's length is bounded", off=[32768]),
    lose("gconfig.stop_token_ids", "inference", "only texts and the model's end tokens end an answer"),
    lose("gconfig.ignore_eos", "inference", "the model's end tokens end an answer"),
    lose("gconfig.frequency_penalty", "inference", "it would falsify log-probabilities", off=[0.0]),
    lose("gconfig.use_beam_search", "inference", "answers are sampled"),
    drop("gconfig.skip_special_tokens", "inference", "an answer's text never holds special tokens"),
    drop("gconfig.lora_name", "inference", "adapters are merged into the weights"),
    carry("sglang.mem_fraction_static", "inference.sglang.mem_fraction_static"),
    carry("sglang.context_length", "inference.sglang.context_length"),
    carry("vllm.gpu_memory_utilization", "inference.vllm.gpu_memory_utilization"),
    carry("vllm.max_model_len", "inference.vllm.max_model_len"),
    carry("vllm.enforce_eager", "inference.vllm.enforce_eager"),
    drop("sglang.model_path", "inference", "engines load what is trained"),
    drop("vllm.model", "inference", "engines load what is trained"),
    drop("sglang.random_seed", "inference", "see seed"),
    drop("vllm.seed", "inference", "see seed"),
    drop("sglang.dtype", "inference", "see model.dtype"),
    drop("vllm.dtype", "inference", "see model.dtype"),
    drop("*.skip_tokenizer_init", "inference", "the engine's affair"),
    lose("sglang.max_running_requests", "inference", "see inference.max_concurrent"),
    lose("sglang.*", "inference", "an option of SGLang's own: put it in the block sglang if the plugin takes it"),
    lose("vllm.*", "inference", "an option of vLLM's own: put it in the block vllm if the plugin takes it"),
    # training
    derive(_ALLOCATION, "training.backend", _backend, "fsdp is fsdp2"),
    derive(("train_dataset.batch_size", "gconfig.n_samples"), "training.batch_size", _batch_size, "prompts x samples"),
    carry("actor.optimizer.lr", "training.learning_rate"),
    derive(
        ("total_train_epochs", "total_train_steps"),
        "training.max_steps",
        meaning.max_steps(_steps, lambda theirs: theirs["total_train_epochs"]),
        "epochs x (tasks // prompts a step)",
    ),
    carry("actor.ppo_n_minibatches", "training.updates", meaning="optimizer updates a batch"),
    carry("actor.optimizer.gradient_clipping", "training.grad_clip"),
    carry("actor.mb_spec.max_tokens_per_mb", "training.micro_batch_tokens"),
    carry("actor.gradient_checkpointing", "training.activation_checkpointing"),
    carry("actor.optimizer.type", "training.optimizer.type", choice({"adam": "adamw"}, "adamw is used")),
    carry("actor.optimizer.weight_decay", "training.optimizer.weight_decay"),
    derive(("actor.optimizer.beta1", "actor.optimizer.beta2"), "training.optimizer.betas", _betas, "both"),
    carry("actor.optimizer.eps", "training.optimizer.eps"),
    carry("actor.optimizer.lr_scheduler_type", "training.optimizer.schedule", _schedule),
    carry("actor.optimizer.min_lr_ratio", "training.optimizer.min_ratio"),
    derive(
        ("actor.optimizer.warmup_steps_proportion",),
        "training.optimizer.warmup_steps",
        meaning.warmup(lambda _: None, lambda theirs: theirs["actor.optimizer.warmup_steps_proportion"], _steps),
        "its share of all steps",
    ),
    lose("actor.optimizer.*", "training", "an option of fp16 loss scaling", off=[2**32, 1.0, 5, 2]),
    lose("actor.mb_spec.n_mbs", "training", "micro-batches are as many as their tokens need", off=[1]),
    drop("actor.mb_spec.*", "training", "the gradient does not depend on how a batch is split"),
    drop("actor.pad_to_maximum", "training", "batches are packed"),
    drop("actor.grad_reduce_dtype", "training", "the backend's affair"),
    lose("actor.fsdp.*", "training", "an option of their FSDP engine"),
    lose("actor.megatron.*", "training", "an option of their Megatron engine"),
    lose("actor.archon.*", "training", "an option of their Archon engine"),
    lose("actor.offload", "training", "weights and moments stay on the device"),
    lose("actor.enable_tree_training", "training", "common prefixes of a group are computed once anyway"),
    # weights
    carry("actor.weight_update_mode", "weights.type", choice({"xccl": "xccl", "nccl": "xccl", "disk": "disk"}, "auto")),
    # objective
    derive(
        ("actor.reward_norm.mean_level", "actor.importance_sampling_level"),
        "objective.type",
        _objective,
        "mean over tokens: dapo within groups, gspo with a ratio a sequence, else reinforce++; ppo with a critic",
    ),
    carry("gconfig.n_samples", "objective.group_size"),
    carry("actor.eps_clip", "objective.clip_low"),
    derive(("actor.eps_clip_higher", "actor.eps_clip"), "objective.clip_high", _clip_high, "eps_clip if not set"),
    derive(("actor.reward_norm.std_level",), "objective.scale", _scale, "what rewards are divided by"),
    derive(("dynamic_bs",), "objective.dynamic_sampling", _dynamic_sampling, "DAPO's"),
    derive(("actor.use_decoupled_loss", "actor.recompute_logprob"), "objective.decoupled", _decoupled, "PPO's two"),
    derive(
        ("actor.rejection_sampling.upper", "actor.rejection_sampling.metric", *_BOUND),
        "objective.behaviour_cap",
        _cap,
        "largest weight of stale tokens",
    ),
    derive(("actor.rejection_sampling.action", *_BOUND), "objective.behaviour_excess", _excess, "mask or clamp"),
    derive(
        ("actor.rejection_sampling.level", "actor.rejection_sampling.agg"),
        "objective.behaviour_level",
        _behaviour_level,
        "mean over a sequence is geometric",
    ),
    lose("actor.rejection_sampling.lower", "objective", "weights have no lower bound"),
    derive(("actor.kl_ctl",), "objective.kl", _kl, "coefficient"),
    derive(("actor.kl_ctl", "ref.path"), "objective.reference", _reference, "the model before training"),
    derive(("actor.kl_ctl",), "objective.kl_in", _kl_in, "theirs is always in the reward"),
    derive(("actor.kl_estimator",), "objective.kl_estimator", _estimator, "k1"),
    carry("actor.mask_no_eos_with_zero", "objective.mask_truncated"),
    lose("actor.reward_scaling", "objective", "rewards are used as they come; a group's scale drops out", off=[1.0]),
    lose("actor.reward_bias", "objective", "rewards are used as they come; a group's mean drops out", off=[0.0]),
    lose("actor.reward_clip", "objective", "rewards are not clipped", off=[20.0]),
    lose("actor.c_clip", "objective", "there is no second clip of negative advantages"),
    lose("actor.m2_threshold", "objective", "there is no M2PO"),
    lose("actor.use_sapo_loss", "objective", "there is no SAPO: the ratio is clipped"),
    lose("actor.sapo_*", "objective", "there is no SAPO", off=[1.0, 1.05]),
    lose("actor.discount", "objective", "only ppo discounts", off=[1.0]),
    lose("actor.gae_lambda", "objective", "only ppo has it", off=[1.0]),
    lose("actor.overlong_*", "objective", "see objective.overlong_buffer and overlong_penalty of dapo"),
    lose("actor.reward_norm.mean_leave1out", "objective", "the group's mean is that of all its members"),
    drop("actor.reward_norm.group_size", "objective", "see group_size"),
    drop("actor.reward_norm.*", "objective", "deviations are of the sample, without an epsilon"),
    lose("actor.adv_norm.*", "objective", "advantages are not normalized over the batch once more"),
    drop("actor.prox_logp_method", "objective", "the proximal policy is computed by the trainer"),
    drop("actor.temperature", "objective", "see inference.sampling.temperature"),
    drop("actor.max_new_tokens", "objective", "see inference.sampling.max_new_tokens"),
    drop("actor.is_critic", "objective", "see objective.type"),
    lose("critic.*", "objective", "see objective.critic, and the options of ppo"),
    lose("teacher.*", "objective", "there is no distillation"),
    drop("ref.*", "objective", "the reference is the model as it was before training"),
    # environments
    derive(_DATA, "environments.0.type", lambda t: meaning.environment(str(t[_DATA[0]])), "gsm8k by its name"),
    carry("train_dataset.path", "environments.0.path", lambda path: meaning.records(path, "train")),
    derive(("valid_dataset.path",), "environments.0.test_path", _test_path, "JSON Lines"),
    derive(_DATA, "environments.0.reward", lambda _: Noted("math", "theirs is in the launch script: check it"), "math"),
    lose("train_dataset.max_length", "environments", "no task is left out for its length"),
    drop("train_dataset.shuffle", "environments", "tasks are drawn at random under the seed"),
    drop("train_dataset.*", "environments", "tasks are read in the rollout workers"),
    drop("valid_dataset.*", "evaluation", "see evaluation.samples"),
    # pipeline
    carry("rollout.max_head_offpolicyness", "pipeline.max_staleness"),
    carry("rollout.queue_size", "pipeline.queue_size"),
    drop("rollout.consumer_batch_size", "pipeline", "see training.batch_size"),
    lose("rollout.request_timeout", "supervision", "see supervision.rollout_timeout", off=[3600]),
    lose("rollout.request_retries", "supervision", "see supervision.task_retries", off=[3]),
    lose("rollout.agent.*", "environments", "an agent is an environment of its own"),
    lose("rollout.api_url", "inference", "answers come from the run's own engines"),
    drop("rollout.*", "pipeline", "of their controller and its logs"),
    # evaluation and checkpoints
    derive(
        ("evaluator.freq_steps", "evaluator.freq_epochs"),
        "evaluation.every",
        meaning.every(lambda t: t["evaluator.freq_steps"], lambda t: t["evaluator.freq_epochs"], _an_epoch),
        "steps; epochs x steps an epoch",
    ),
    derive(
        ("evaluator.eval_before_train",),
        "evaluation.before",
        lambda theirs: bool(theirs["evaluator.eval_before_train"]) and _evaluates(theirs),
        "false if not set",
    ),
    derive(("valid_dataset.path",), "evaluation.after", _after, "where there is a valid_dataset"),
    lose("evaluator.freq_secs", "evaluation", "evaluations are counted in steps"),
    lose("eval_gconfig.*", "evaluation", "see evaluation.sampling; it is greedy by default"),
    derive(
        ("saver.freq_steps", "saver.freq_epochs"),
        "checkpoint.every",
        meaning.every(lambda t: t["saver.freq_steps"], lambda t: t["saver.freq_epochs"], _an_epoch),
        "steps; epochs x steps an epoch",
    ),
    lose("saver.freq_secs", "checkpoint", "checkpoints are counted in steps"),
    drop("saver.*", "checkpoint", "checkpoints are written beside the run"),
    drop("evaluator.*", "evaluation", "of the files there"),
    drop("recover.*", "checkpoint", "every checkpoint can be resumed from: run --resume"),
    # trackers
    derive(_MODES, "trackers", _trackers, "those that are not disabled"),
    lose("stats_logger.swanlab.mode", "trackers", "there is no SwanLab", off=["disabled"]),
    lose("stats_logger.*", "trackers", "see the options of the tracker"),
    drop("perf_tracer.*", "trackers", "a trace is always written"),
    lose("memory_profiler.*", "trackers", "memory is not profiled"),
    lose("total_train_n_seqs", "training", "a run is as long as training.max_steps"),
    drop("*.log_level", "name", "of their services"),
    drop("scheduler", "executor", "workers are started by the executor"),
)

FRAMEWORK = Framework(
    "areal",
    "an experiment of AReaL 1.0",
    "areal/api/cli_args.py of inclusionAI/AReaL, release 1.0.4",
    RULES,
    DEFAULTS,
)
