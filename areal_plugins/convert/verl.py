"""verl: its Hydra YAML of PPO and GRPO, or the overrides of a launch script.

Facts from `verl/trainer/config/_generated_ppo_trainer.yaml`, `verl/trainer/ppo/{core_algos,ray_trainer}.py` and
`verl/workers/fsdp_workers.py`.
"""

from __future__ import annotations

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

_ACTOR, _ROLLOUT, _MODEL = (f"actor_rollout_ref.{part}" for part in ("actor", "rollout", "model"))

DEFAULTS = {
    "trainer.experiment_name": "gsm8k",
    "trainer.project_name": "verl_examples",
    "trainer.nnodes": 1,
    "trainer.n_gpus_per_node": 8,
    "trainer.device": "cuda",
    "trainer.total_epochs": 30,
    "trainer.val_before_train": True,
    "trainer.save_freq": -1,
    "trainer.test_freq": -1,
    "trainer.logger": ["console", "wandb"],
    "data.train_batch_size": 1024,
    "data.max_response_length": 512,
    "data.prompt_key": "prompt",
    "data.val_files": None,
    f"{_MODEL}.enable_gradient_checkpointing": True,
    f"{_MODEL}.lora_rank": 0,
    f"{_MODEL}.lora_alpha": 16,
    f"{_ACTOR}.strategy": "fsdp",
    f"{_ACTOR}.ppo_mini_batch_size": 256,
    f"{_ACTOR}.ppo_epochs": 1,
    f"{_ACTOR}.ppo_max_token_len_per_gpu": 16384,
    f"{_ACTOR}.clip_ratio": 0.2,
    f"{_ACTOR}.clip_ratio_low": 0.2,
    f"{_ACTOR}.clip_ratio_high": 0.2,
    f"{_ACTOR}.clip_ratio_c": 3.0,
    f"{_ACTOR}.loss_agg_mode": "token-mean",
    f"{_ACTOR}.policy_loss.loss_mode": "vanilla",
    f"{_ACTOR}.use_kl_loss": False,
    f"{_ACTOR}.kl_loss_coef": 0.001,
    f"{_ACTOR}.kl_loss_type": "low_var_kl",
    f"{_ACTOR}.grad_clip": 1.0,
    f"{_ACTOR}.ulysses_sequence_parallel_size": 1,
    f"{_ACTOR}.fsdp_config.model_dtype": "fp32",
    f"{_ACTOR}.optim.lr": 1e-6,
    f"{_ACTOR}.optim.weight_decay": 0.01,
    f"{_ACTOR}.optim.betas": [0.9, 0.999],
    f"{_ACTOR}.optim.lr_warmup_steps": -1,
    f"{_ACTOR}.optim.lr_warmup_steps_ratio": 0.0,
    f"{_ROLLOUT}.n": 1,
    f"{_ROLLOUT}.max_num_seqs": 256,
    f"{_ROLLOUT}.tensor_model_parallel_size": 2,
    f"{_ROLLOUT}.temperature": 1.0,
    f"{_ROLLOUT}.gpu_memory_utilization": 0.5,
    "algorithm.adv_estimator": "gae",
    "algorithm.norm_adv_by_std_in_grpo": True,
    "algorithm.use_kl_in_reward": False,
    "algorithm.kl_ctrl.kl_coef": 0.001,
    "algorithm.rollout_correction.rollout_is_threshold": 2.0,
    "algorithm.gamma": 1.0,
    "algorithm.lam": 1.0,
    "critic.optim.lr": 1e-5,
    "critic.cliprange_value": 0.5,
    "trainer.critic_warmup": 0,
}

# --- how long ----------------------------------------------------------------------------------------


def _files(theirs: Theirs) -> str:
    given = theirs["data.train_files"]
    return str(given[0] if isinstance(given, list) and given else given or "")


def _steps(theirs: Theirs) -> int | None:
    if theirs["trainer.total_training_steps"]:
        return int(theirs["trainer.total_training_steps"])
    each = meaning.epoch(meaning.tasks(theirs, _files(theirs)), theirs["data.train_batch_size"])
    return theirs["trainer.total_epochs"] * each if each else None


def _updates(theirs: Theirs) -> int:
    """Both counts are of prompts."""
    return max(int(theirs["data.train_batch_size"]) // int(theirs[f"{_ACTOR}.ppo_mini_batch_size"]), 1)


def _all_updates(theirs: Theirs) -> int | None:
    steps = _steps(theirs)
    return steps * _updates(theirs) if steps else None


def _batch_size(theirs: Theirs) -> Any:
    prompts, samples = theirs["data.train_batch_size"], theirs[f"{_ROLLOUT}.n"]
    return Noted(prompts * samples, f"{prompts} prompts of {samples} samples; counts trajectories")


def _frequency(given: int) -> Any:
    return given if given > 0 else Needless("never there; our default holds")


# --- the model and its devices -----------------------------------------------------------------------

_DTYPES = {
    **dict.fromkeys(("fp32", "float32"), "float32"),
    **dict.fromkeys(("bf16", "bfloat16"), "bfloat16"),
    **dict.fromkeys(("fp16", "float16"), "float16"),
}


def _dtype(theirs: Theirs) -> Any:
    return choice(_DTYPES, "auto is used")(theirs[f"{_ACTOR}.fsdp_config.model_dtype"])


def _amp(theirs: Theirs) -> Any:
    return Noted(_dtype(theirs) == "float32", "FSDP computes in bfloat16 there")


def _lora(key: str) -> Any:
    return lambda theirs: theirs[key] if theirs[f"{_MODEL}.lora_rank"] else Needless("lora_rank is 0: no adapters")


def _targets(theirs: Theirs) -> Any:
    given = theirs[f"{_MODEL}.target_modules"]
    if not theirs[f"{_MODEL}.lora_rank"]:
        return Needless("lora_rank is 0: no adapters")
    return [] if given == "all-linear" else [given] if isinstance(given, str) else given


def _backend(theirs: Theirs) -> Any:
    given = theirs[f"{_ACTOR}.strategy"]
    if given in ("fsdp", "fsdp2"):
        return "fsdp2"
    return Partly("fsdp2", f"{given} has no counterpart: fsdp2 shards, too")


def _devices(theirs: Theirs) -> int:
    return int(theirs["trainer.nnodes"] * theirs["trainer.n_gpus_per_node"])


def _spread(axis: str, key: str) -> Any:
    """An axis of some size within all devices, the rest being data-parallel."""

    def make(theirs: Theirs) -> Any:
        size, count = int(theirs[key] or 1), _devices(theirs)
        if size <= 1:
            return "dp"
        if count % size:
            return Lost(f"{size} does not divide {count} devices: all of them are data-parallel")
        return {axis: size} if count == size else {"dp": count // size, axis: size}

    return make


def _executor(theirs: Theirs) -> Any:
    return "ray" if theirs["trainer.nnodes"] > 1 else Noted("local", "one machine needs no Ray")


# --- the objective -----------------------------------------------------------------------------------

_BY_AGGREGATION = {
    "token-mean": "dapo",
    "seq-mean-token-mean": "grpo",
    "seq-mean-token-sum": "dr-grpo",
    "seq-mean-token-sum-norm": "dr-grpo",
}
_BY_LOSS = {"gspo": "gspo", "cispo": "cispo"}
_BY_ESTIMATOR = {
    "gae": "ppo",
    "rloo": "rloo",
    "reinforce_plus_plus": "reinforce++",
    "reinforce_plus_plus_baseline": "reinforce++",
}


def _objective(theirs: Theirs) -> Any:
    estimator, loss = theirs["algorithm.adv_estimator"], theirs[f"{_ACTOR}.policy_loss.loss_mode"]
    aggregation = theirs[f"{_ACTOR}.loss_agg_mode"]
    if estimator in _BY_ESTIMATOR:
        return _BY_ESTIMATOR[estimator]
    if loss in _BY_LOSS:
        return _BY_LOSS[loss]
    name = _BY_AGGREGATION.get(aggregation, "grpo")
    if estimator not in ("grpo", "grpo_vectorized") or loss != "vanilla":
        return Partly(name, f"adv_estimator {estimator} with loss_mode {loss} has no counterpart: {name} is used")
    if aggregation == "seq-mean-token-sum":
        return Partly(name, "token sums are divided by the longest answer allowed: a constant scale of the loss")
    return Noted(name, f"its denominator is that of {aggregation}")


def _name(theirs: Theirs) -> str:
    made = _objective(theirs)
    return str(made.value if isinstance(made, Noted | Partly) else made)


def _in_groups(theirs: Theirs) -> bool:
    return _name(theirs) in ("grpo", "dapo", "dr-grpo", "gspo", "cispo")


def _scale(theirs: Theirs) -> Any:
    if not _in_groups(theirs):
        return Needless("only of objectives within groups")
    return "group" if theirs["algorithm.norm_adv_by_std_in_grpo"] else "none"


def _baseline(theirs: Theirs) -> Any:
    grouped = theirs["algorithm.adv_estimator"] == "reinforce_plus_plus_baseline"
    return "group" if grouped else Needless("only of reinforce_plus_plus_baseline")


def _clip(side: str) -> Any:
    def make(theirs: Theirs) -> Any:
        given = theirs[f"{_ACTOR}.clip_ratio_{side}"]
        own = f"{_ACTOR}.clip_ratio_{side}" in theirs
        return given if own or f"{_ACTOR}.clip_ratio" not in theirs else theirs[f"{_ACTOR}.clip_ratio"]

    return make


def _dynamic_sampling(theirs: Theirs) -> Any:
    if _name(theirs) != "dapo":
        return Needless("only dapo replaces groups")
    return bool(theirs["algorithm.filter_groups.enable"])


def _max_length(theirs: Theirs) -> Any:
    given = theirs[f"{_ACTOR}.loss_scale_factor"]
    return given if given and _name(theirs) == "dr-grpo" else Needless("the longest answer allowed, as here")


def _only_ppo(key: str) -> Any:
    return lambda theirs: theirs[key] if _name(theirs) == "ppo" else Needless("only ppo has a critic")


# --- the divergence from the reference ---------------------------------------------------------------

_ESTIMATORS = {
    **dict.fromkeys(("kl", "k1", "kl+", "k1+"), "k1"),
    **dict.fromkeys(("mse", "k2", "mse+", "k2+"), "k2"),
    **dict.fromkeys(("low_var_kl", "k3", "low_var_kl+", "k3+"), "k3"),
}
_KL_KEYS = (
    f"{_ACTOR}.use_kl_loss",
    f"{_ACTOR}.kl_loss_coef",
    "algorithm.use_kl_in_reward",
    "algorithm.kl_ctrl.kl_coef",
)


def _kl(theirs: Theirs) -> Any:
    in_loss, in_reward = theirs[f"{_ACTOR}.use_kl_loss"], theirs["algorithm.use_kl_in_reward"]
    if in_loss and in_reward:
        return Partly(
            theirs[f"{_ACTOR}.kl_loss_coef"], "the divergence is in the loss or in the reward: it is the loss"
        )
    if in_loss:
        return theirs[f"{_ACTOR}.kl_loss_coef"]
    return theirs["algorithm.kl_ctrl.kl_coef"] if in_reward else 0.0


def _has_kl(theirs: Theirs) -> bool:
    made = _kl(theirs)
    return bool(made.value if isinstance(made, Partly) else made)


def _kl_in(theirs: Theirs) -> Any:
    if not _has_kl(theirs):
        return Needless("no divergence is measured")
    return "loss" if theirs[f"{_ACTOR}.use_kl_loss"] else "reward"


def _estimator(theirs: Theirs) -> Any:
    if not theirs[f"{_ACTOR}.use_kl_loss"]:
        return Needless("use_kl_loss is off")
    return choice(_ESTIMATORS, "the objective's default")(theirs[f"{_ACTOR}.kl_loss_type"])


def _reward_estimator(theirs: Theirs) -> Any:
    if theirs["algorithm.kl_penalty"] in ("kl", "k1") or not theirs["algorithm.use_kl_in_reward"]:
        return Needless("k1, or not in the reward")
    return Lost("in the reward only k1 has the gradient of the divergence: k1 is used")


def _reference(theirs: Theirs) -> Any:
    return {} if _has_kl(theirs) else Needless("no divergence is measured: no reference is needed")


# --- the weight of tokens that another policy drew ---------------------------------------------------

_CORRECTION = "algorithm.rollout_correction"


def _correction(make: Any) -> Any:
    def value(theirs: Theirs) -> Any:
        if not theirs[f"{_CORRECTION}.rollout_is"]:
            return Lost("off there: here tokens are always weighted by the trainer's and the engine's probabilities")
        return make(theirs)

    return value


# --- data and figures --------------------------------------------------------------------------------


def _environment(_: Theirs) -> Any:
    return Noted("jsonl", "its records hold messages and ground truths, whatever the data set")


def _reward(theirs: Theirs) -> Any:
    path, name = theirs["custom_reward_function.path"], theirs["custom_reward_function.name"] or "compute_score"
    if path:
        where = path if str(path).startswith(("/", ".", "$", "~")) else f"./{path}"
        return Partly(
            {"type": "function", "path": f"{where}:{name}"},
            "here the function gets one Sample: see reward/function for its arguments",
        )
    if meaning.is_gsm8k(_files(theirs)):
        return Noted({"type": "exact", "extract": "after-hashes", "number": True}, "the number after ####")
    return Noted("math", "theirs goes by each record's data_source: check it")


def _first(key: str, split: str) -> Any:
    def make(theirs: Theirs) -> Any:
        made, given = meaning.records(theirs[key], split), theirs[key]
        if isinstance(given, list) and len(given) > 1:
            path = made.value if isinstance(made, Noted) else made
            return Partly(
                path, f"one environment reads one file; for {', '.join(map(str, given[1:]))} add environments"
            )
        return made

    return make


def _test_path(theirs: Theirs) -> Any:
    return _first("data.val_files", "test")(theirs) if theirs["data.val_files"] else Needless("no val_files")


def _before(theirs: Theirs) -> bool:
    return bool(theirs["trainer.val_before_train"]) and theirs["data.val_files"] is not None


def _trackers(theirs: Theirs) -> Any:
    given = theirs["trainer.logger"]
    names = [given] if isinstance(given, str) else list(given)
    known = [name for name in names if name in ("tensorboard", "wandb", "mlflow", "trackio")]
    other = [name for name in names if name not in (*known, "console")]
    found = ["jsonl", *known]
    return Partly(found, f"there is no tracker {', '.join(other)}") if other else found


_NO_SAMPLING = Needless("an evaluation is greedy and as long as an answer")
_CORRECTION_KEYS = (f"{_CORRECTION}.rollout_is", f"{_CORRECTION}.rollout_is_threshold")
_STRATEGY = f"{_ACTOR}.strategy"
_POOL = ("trainer.nnodes", "trainer.n_gpus_per_node")

RULES: tuple[Rule, ...] = (
    carry("trainer.experiment_name", "name"),
    drop("trainer.project_name", "name", "see the options of the tracker"),
    drop("defaults*", "name", "the defaults of their files are taken from the table"),
    drop("hydra.*", "name", "of their command line"),
    drop("*_target_", "name", "of their loader"),
    carry("data.seed", "seed"),
    drop(f"{_ACTOR}.data_loader_seed", "seed", "one seed fixes everything"),
    drop("*.seed", "seed", "one seed fixes everything"),
    # model
    derive((f"{_MODEL}.path",), "model.type", lambda _: "hf", "a directory or hub id"),
    carry(f"{_MODEL}.path", "model.path"),
    carry(f"{_MODEL}.trust_remote_code", "model.trust_remote_code"),
    derive((f"{_ACTOR}.fsdp_config.model_dtype",), "model.dtype", _dtype, "fp32 or bf16"),
    derive((f"{_MODEL}.lora_rank",), "model.lora.rank", _lora(f"{_MODEL}.lora_rank"), "0 is off"),
    derive((f"{_MODEL}.lora_alpha",), "model.lora.alpha", _lora(f"{_MODEL}.lora_alpha"), "adapters"),
    derive((f"{_MODEL}.target_modules",), "model.lora.targets", _targets, "all-linear is []"),
    lose(f"{_MODEL}.exclude_modules", "model", "see model.lora.targets"),
    lose(f"{_MODEL}.lora_adapter_path", "model", "adapters start anew"),
    drop(f"{_MODEL}.use_shm", "model", "the model is read where it is"),
    drop(f"{_MODEL}.tokenizer_path", "model", "the model's own tokenizer is used"),
    drop("data.tokenizer", "model", "the model's own tokenizer is used"),
    lose(f"{_MODEL}.custom_chat_template", "model", "the model's own template is used"),
    lose(f"{_MODEL}.external_lib", "model", "a model of code of its own: trust_remote_code"),
    lose(f"{_MODEL}.override_config*", "model", "the model is taken as it is"),
    drop(f"{_MODEL}.hf_config_path", "model", "the model's own config is used"),
    lose(f"{_MODEL}.mtp.*", "model", "no tokens are predicted ahead", off=[0.1, 2, 4, 1, "EAGLE", "mtp"]),
    # devices
    derive(
        ("trainer.device",),
        "platform",
        lambda t: choice({"cuda": "cuda", "npu": "npu", "cpu": "cpu"}, "auto")(t["trainer.device"]),
        "by name",
    ),
    derive(("trainer.nnodes",), "executor", _executor, "ray for more than one machine"),
    drop("ray_kwargs.*", "executor", "see the options of the executor"),
    drop("ray_init.*", "executor", "see the options of the executor"),
    carry("trainer.nnodes", "resources.train.num_nodes"),
    carry("trainer.n_gpus_per_node", "resources.train.gpus_per_node"),
    derive(
        (f"{_ACTOR}.ulysses_sequence_parallel_size",),
        "resources.train.parallel",
        _spread("sp", f"{_ACTOR}.ulysses_sequence_parallel_size"),
        "sp, the rest dp",
    ),
    derive(_POOL[:1], "resources.infer.num_nodes", lambda theirs: theirs["trainer.nnodes"], "the same devices"),
    derive(_POOL[1:], "resources.infer.gpus_per_node", lambda t: t["trainer.n_gpus_per_node"], "the same devices"),
    derive(
        (f"{_ROLLOUT}.tensor_model_parallel_size",),
        "resources.infer.parallel",
        _spread("tp", f"{_ROLLOUT}.tensor_model_parallel_size"),
        "tp, the rest dp",
    ),
    lose(f"{_ROLLOUT}.expert_parallel_size", "resources", "see resources.infer.parallel", off=[1]),
    lose(f"{_ROLLOUT}.pipeline_model_parallel_size", "resources", "see resources.infer.parallel", off=[1]),
    drop(f"{_ROLLOUT}.data_parallel_size", "resources", "see resources.infer.parallel"),
    derive(
        ("actor_rollout_ref.hybrid_engine", "trainer.nnodes"),
        "placement",
        lambda _: Noted("colocated", "engines sleep on the trainer's devices"),
        "always",
    ),
    drop(f"{_ROLLOUT}.free_cache_engine", "placement", "see placement"),
    drop("actor_rollout_ref.nccl_timeout", "weights", "see the options of the transport"),
    # inference
    carry(f"{_ROLLOUT}.name", "inference.type", choice({"vllm": "vllm", "sglang": "sglang", "hf": "torch"}, "torch")),
    carry(f"{_ROLLOUT}.max_num_seqs", "inference.max_concurrent"),
    carry(f"{_ROLLOUT}.temperature", "inference.sampling.temperature"),
    carry(f"{_ROLLOUT}.top_p", "inference.sampling.top_p"),
    carry(f"{_ROLLOUT}.top_k", "inference.sampling.top_k", lambda k: max(int(k), 0), "-1 is off: 0"),
    carry("data.max_response_length", "inference.sampling.max_new_tokens"),
    drop(f"{_ROLLOUT}.response_length", "inference", "see inference.sampling.max_new_tokens"),
    carry(f"{_ROLLOUT}.gpu_memory_utilization", "inference.vllm.gpu_memory_utilization"),
    carry(f"{_ROLLOUT}.enforce_eager", "inference.vllm.enforce_eager"),
    carry(f"{_ROLLOUT}.max_model_len", "inference.vllm.max_model_len"),
    lose(f"{_ROLLOUT}.ignore_eos", "inference", "the model's end tokens end an answer"),
    lose(f"{_ROLLOUT}.do_sample", "inference", "see inference.sampling.temperature", off=[True]),
    drop(f"{_ROLLOUT}.mode", "inference", "engines are always asked asynchronously"),
    lose(f"{_ROLLOUT}.quantization*", "inference", "weights are not quantized"),
    lose(f"{_ROLLOUT}.multi_turn.enable", "environments", "turns are an environment of their own"),
    drop(f"{_ROLLOUT}.multi_turn.*", "environments", "turns are an environment of their own"),
    drop(f"{_ROLLOUT}.agent.*", "environments", "rollout workers: resources.rollout.cpus"),
    drop(f"{_ROLLOUT}.log_prob_*", "training", "the gradient does not depend on how a batch is split"),
    drop(f"{_ROLLOUT}.calculate_log_probs", "inference", "every token carries its log-probability"),
    drop(f"{_ROLLOUT}.layered_summon", "weights", "a transfer takes one bucket of memory"),
    drop(f"{_ROLLOUT}.load_format", "weights", "engines load what is trained"),
    drop(f"{_ROLLOUT}.dtype", "inference", "see model.dtype"),
    lose(f"{_ROLLOUT}.engine_kwargs*", "inference", "see the options of the engine"),
    carry(f"{_ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes", "weights.bucket_mib"),
    drop(f"{_ROLLOUT}.checkpoint_engine.*", "weights", "see the transports"),
    # training
    derive((_STRATEGY,), "training.backend", _backend, "fsdp and fsdp2 are fsdp2"),
    derive(("data.train_batch_size", f"{_ROLLOUT}.n"), "training.batch_size", _batch_size, "prompts x samples"),
    derive(
        (f"{_ACTOR}.ppo_mini_batch_size", "data.train_batch_size"),
        "training.updates",
        _updates,
        "batch / mini-batch, both in prompts",
    ),
    carry(f"{_ACTOR}.optim.lr", "training.learning_rate"),
    derive(
        ("trainer.total_epochs", "trainer.total_training_steps"),
        "training.max_steps",
        meaning.max_steps(_steps, lambda theirs: theirs["trainer.total_epochs"]),
        "epochs x (tasks // prompts a step)",
    ),
    derive(
        (f"{_ACTOR}.grad_clip", f"{_ACTOR}.optim.clip_grad"),
        "training.grad_clip",
        lambda theirs: theirs[f"{_ACTOR}.grad_clip"],
        "as it is",
    ),
    derive(
        (f"{_ACTOR}.ppo_max_token_len_per_gpu", f"{_ACTOR}.use_dynamic_bsz"),
        "training.micro_batch_tokens",
        lambda t: t[f"{_ACTOR}.ppo_max_token_len_per_gpu"] if t[f"{_ACTOR}.use_dynamic_bsz"] else Noted(0, "chosen"),
        "where use_dynamic_bsz is on",
    ),
    carry(f"{_MODEL}.enable_gradient_checkpointing", "training.activation_checkpointing"),
    derive((f"{_ACTOR}.fsdp_config.model_dtype",), "training.amp.enabled", _amp, "bfloat16 over fp32 weights"),
    carry(f"{_ACTOR}.optim.optimizer", "training.optimizer.type", choice({"AdamW": "adamw"}, "adamw is used")),
    carry(f"{_ACTOR}.optim.weight_decay", "training.optimizer.weight_decay"),
    carry(f"{_ACTOR}.optim.betas", "training.optimizer.betas"),
    derive(
        (f"{_ACTOR}.optim.lr_scheduler_type", f"{_ACTOR}.optim.warmup_style"),
        "training.optimizer.schedule",
        lambda t: choice({"constant": "constant", "cosine": "cosine"}, "the rate is constant")(
            t[f"{_ACTOR}.optim.warmup_style"] or t[f"{_ACTOR}.optim.lr_scheduler_type"] or "constant"
        ),
        "constant or cosine",
    ),
    carry(f"{_ACTOR}.optim.min_lr_ratio", "training.optimizer.min_ratio"),
    derive(
        (f"{_ACTOR}.optim.lr_warmup_steps", f"{_ACTOR}.optim.lr_warmup_steps_ratio"),
        "training.optimizer.warmup_steps",
        meaning.warmup(
            lambda t: t[f"{_ACTOR}.optim.lr_warmup_steps"] if t[f"{_ACTOR}.optim.lr_warmup_steps"] > 0 else None,
            lambda t: t[f"{_ACTOR}.optim.lr_warmup_steps_ratio"],
            _all_updates,
        ),
        "a number wins over a share of all steps",
    ),
    drop(f"{_ACTOR}.optim.total_training_steps", "training", "see training.max_steps"),
    lose(f"{_ACTOR}.optim.num_cycles", "training", "half a cosine", off=[0.5]),
    lose(f"{_ACTOR}.optim.override_optimizer_config*", "training", "see the options of the optimizer"),
    drop(f"{_ACTOR}.optim.optimizer_impl", "training", "the optimizer is found by its name"),
    lose(f"{_ACTOR}.ppo_epochs", "training", "each trajectory is trained on once", off=[1]),
    drop(f"{_ACTOR}.ppo_micro_batch_size*", "training", "the gradient does not depend on how a batch is split"),
    drop(f"{_ACTOR}.shuffle", "training", "a batch is split by whole groups"),
    drop(f"{_MODEL}.use_remove_padding", "training", "batches are packed"),
    drop("*.use_remove_padding", "training", "batches are packed"),
    drop(f"{_MODEL}.use_liger", "training", "log-probabilities never hold all logits here"),
    drop("*.use_fused_kernels", "training", "log-probabilities never hold all logits here"),
    drop(f"{_MODEL}.*", "training", "the backend's affair"),
    lose(f"{_ACTOR}.fsdp_config.*_offload", "training", "weights and moments stay on the device"),
    lose(f"{_ACTOR}.fsdp_config.offload_policy", "training", "weights and moments stay on the device"),
    drop(f"{_ACTOR}.fsdp_config.*", "training", "see the options of the backend"),
    lose(f"{_ACTOR}.megatron.*", "training", "an option of Megatron"),
    drop(f"{_ACTOR}.use_torch_compile", "training", "the backend's affair"),
    drop("trainer.balance_batch", "training", "batches are packed by length"),
    drop("trainer.use_legacy_worker_impl", "training", "of their workers"),
    # objective
    derive(
        ("algorithm.adv_estimator", f"{_ACTOR}.loss_agg_mode", f"{_ACTOR}.policy_loss.loss_mode"),
        "objective.type",
        _objective,
        "grpo by its denominator: token-mean is dapo, seq-mean-token-mean grpo, sums dr-grpo",
    ),
    carry(f"{_ROLLOUT}.n", "objective.group_size"),
    derive((f"{_ACTOR}.clip_ratio_low", f"{_ACTOR}.clip_ratio"), "objective.clip_low", _clip("low"), "below"),
    derive(
        (f"{_ACTOR}.clip_ratio_high", f"{_ACTOR}.clip_ratio"), "objective.clip_high", _clip("high"), "1 + clip_high"
    ),
    lose(f"{_ACTOR}.clip_ratio_c", "objective", "there is no second clip of negative advantages", off=[0]),
    derive(("algorithm.norm_adv_by_std_in_grpo",), "objective.scale", _scale, "group or none"),
    derive(("algorithm.adv_estimator",), "objective.baseline", _baseline, "of reinforce++"),
    derive(
        ("algorithm.filter_groups.enable", f"{_ACTOR}.loss_agg_mode"),
        "objective.dynamic_sampling",
        _dynamic_sampling,
        "DAPO's",
    ),
    lose("algorithm.filter_groups.*", "objective", "groups are replaced as long as it takes"),
    derive((f"{_ACTOR}.loss_scale_factor",), "objective.max_length", _max_length, "of dr-grpo"),
    derive(_KL_KEYS, "objective.kl", _kl, "the one that is switched on"),
    derive(_KL_KEYS[::2], "objective.kl_in", _kl_in, "loss or reward"),
    derive((f"{_ACTOR}.kl_loss_type", f"{_ACTOR}.use_kl_loss"), "objective.kl_estimator", _estimator, "k1, k2 or k3"),
    derive(("algorithm.kl_penalty",), "objective", _reward_estimator, "k1"),
    derive(_KL_KEYS[::2], "objective.reference", _reference, "where a divergence is measured"),
    lose("algorithm.kl_ctrl.type", "objective", "the coefficient is fixed", off=["fixed"]),
    drop("algorithm.kl_ctrl.*", "objective", "the coefficient is fixed"),
    carry(f"{_ACTOR}.entropy_coeff", "objective.entropy"),
    drop(f"{_ACTOR}.calculate_entropy", "objective", "the entropy is always reported"),
    derive(
        _CORRECTION_KEYS[::-1],
        "objective.behaviour_cap",
        _correction(lambda theirs: theirs[f"{_CORRECTION}.rollout_is_threshold"]),
        "truncation of the weight",
    ),
    derive(
        _CORRECTION_KEYS[:1],
        "objective.behaviour_level",
        _correction(lambda theirs: theirs[f"{_CORRECTION}.rollout_is"]),
        "token or sequence",
    ),
    carry(f"{_CORRECTION}.bypass_mode", "objective.decoupled", lambda on: not on, "bypass is not decoupled"),
    lose(f"{_CORRECTION}.*", "objective", "weights are truncated, not rejected or normalized", off=["ppo_clip"]),
    derive(("algorithm.gamma",), "objective.gamma", _only_ppo("algorithm.gamma"), "of ppo"),
    derive(("algorithm.lam",), "objective.gae_lambda", _only_ppo("algorithm.lam"), "of ppo"),
    derive(("critic.cliprange_value",), "objective.value_clip", _only_ppo("critic.cliprange_value"), "of ppo"),
    derive(("critic.optim.lr",), "objective.critic.learning_rate", _only_ppo("critic.optim.lr"), "of ppo"),
    derive(("trainer.critic_warmup",), "objective.critic.warmup_steps", _only_ppo("trainer.critic_warmup"), "of ppo"),
    drop("critic.*", "objective", "the critic has the actor's model and backend"),
    lose("algorithm.use_pf_ppo", "objective", "there is no PF-PPO"),
    drop("algorithm.pf_ppo.*", "objective", "there is no PF-PPO"),
    lose(f"{_ACTOR}.policy_loss.*", "objective", "an option of a loss that is not here", off=[2e-4, 1.0, 5.0, 0.1]),
    lose(f"{_ACTOR}.tau_*", "objective", "there is no SAPO", off=[1.0, 1.05]),
    drop("actor_rollout_ref.ref.*", "objective", "the reference is the model as it was before training"),
    # environments
    derive(("data.train_files",), "environments.0.type", _environment, "records of any data set"),
    derive(("data.train_files",), "environments.0.path", _first("data.train_files", "train"), "JSON Lines"),
    derive(("data.val_files",), "environments.0.test_path", _test_path, "JSON Lines"),
    derive(
        ("data.prompt_key", "data.train_files"),
        "environments.0.fields.prompt",
        lambda theirs: Noted(theirs["data.prompt_key"], "messages"),
        "the field of messages",
    ),
    derive(
        ("data.train_files",),
        "environments.0.fields.answer",
        lambda _: Noted("answer", "write reward_model.ground_truth there when you export the records"),
        "to be written",
    ),
    derive(
        ("data.train_files",),
        "environments.0.prompt",
        lambda _: Noted("chat", "prompts are messages"),
        "chat",
    ),
    derive(
        ("custom_reward_function.path", "custom_reward_function.name", "data.train_files"),
        "environments.0.reward",
        _reward,
        "function; by data_source there",
    ),
    drop("data.reward_fn_key", "environments", "an environment has one reward"),
    lose("data.max_prompt_length", "environments", "a prompt that is too long is an error", off=[512]),
    lose("data.filter_overlong_prompts", "environments", "a prompt that is too long is an error"),
    lose("data.truncation", "environments", "prompts are never cut", off=["error"]),
    lose("data.*_max_samples", "environments", "all records are tasks", off=[-1]),
    lose("data.custom_cls.*", "environments", "a data set of its own is an environment plugin"),
    lose("data.apply_chat_template_kwargs*", "environments", "the chat template has no arguments here"),
    drop("data.shuffle", "environments", "tasks are drawn at random under the seed"),
    drop("data.val_batch_size", "evaluation", "see evaluation.samples"),
    drop("data.*", "environments", "tasks are read in the rollout workers"),
    lose("reward_model.enable", "environments", "see the rewards `model` and `remote`"),
    drop("reward_model.*", "environments", "see the rewards"),
    drop("reward_manager.*", "environments", "see the rewards"),
    drop("custom_reward_function.*", "environments", "see the rewards"),
    # pipeline
    derive(
        ("data.train_batch_size",),
        "pipeline.max_staleness",
        lambda _: Noted(0, "verl generates and trains in turns; more lets both overlap"),
        "always 0",
    ),
    drop("transfer_queue.*", "pipeline", "trajectories have a buffer"),
    # evaluation and checkpoints
    carry("trainer.test_freq", "evaluation.every", _frequency, "-1 is never"),
    derive(("trainer.val_before_train",), "evaluation.before", _before, "true if not set"),
    derive(
        ("data.val_files",), "evaluation.after", lambda theirs: theirs["data.val_files"] is not None, "with val_files"
    ),
    carry(f"{_ROLLOUT}.val_kwargs.temperature", "evaluation.sampling.temperature"),
    carry(f"{_ROLLOUT}.val_kwargs.top_p", "evaluation.sampling.top_p"),
    carry(f"{_ROLLOUT}.val_kwargs.top_k", "evaluation.sampling.top_k", lambda k: max(int(k), 0)),
    derive(
        ("data.max_response_length", f"{_ROLLOUT}.val_kwargs.temperature"),
        "evaluation.sampling.max_new_tokens",
        lambda theirs: theirs["data.max_response_length"] if theirs.has(f"{_ROLLOUT}.val_kwargs") else _NO_SAMPLING,
        "where val_kwargs are given",
    ),
    lose(f"{_ROLLOUT}.val_kwargs.n", "evaluation", "an evaluation asks once a task", off=[1]),
    drop(f"{_ROLLOUT}.val_kwargs.do_sample", "evaluation", "see evaluation.sampling.temperature"),
    lose("trainer.val_only", "evaluation", "areal-plugins eval"),
    carry("trainer.save_freq", "checkpoint.every", _frequency, "-1 is never"),
    carry("trainer.max_actor_ckpt_to_keep", "checkpoint.keep"),
    drop("trainer.max_critic_ckpt_to_keep", "checkpoint", "see checkpoint.keep"),
    drop("trainer.resume_*", "checkpoint", "areal-plugins run --resume"),
    drop("trainer.default_*", "checkpoint", "checkpoints are in the run directory"),
    drop("*.checkpoint.*", "checkpoint", "a checkpoint holds everything that a resumed run needs"),
    drop("trainer.del_local_ckpt_after_load", "checkpoint", "see checkpoint.keep"),
    # trackers
    derive(("trainer.logger",), "trackers", _trackers, "those there are here"),
    drop("trainer.log_val_generations", "trackers", "areal-plugins rollouts"),
    drop("trainer.*_data_dir", "trackers", "every trajectory is in the run's trajectories/"),
    drop("trainer.ray_wait_register_center_timeout", "executor", "see the options of the executor"),
    drop("trainer.esi_redundant_time", "checkpoint", "of their cluster"),
    drop("*profiler*", "trackers", "a trace is always written"),
    drop(f"{_ACTOR}.*", "training", "of their workers"),
    drop(f"{_ROLLOUT}.*", "inference", "see the options of the engine"),
)

FRAMEWORK = Framework(
    "verl",
    "a trainer config of verl",
    "verl/trainer/config/_generated_ppo_trainer.yaml of volcengine/verl, January 2026",
    RULES,
    DEFAULTS,
)
