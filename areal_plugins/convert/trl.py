"""TRL: a YAML for `trl grpo --config`: the fields of GRPOConfig, TrainingArguments, ModelConfig and of its script.

Facts from `trl/trainer/{grpo_config,base_config,model_config,grpo_trainer}.py` and `trl/scripts/grpo.py`.
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

DEFAULTS = {
    "seed": 42,
    "dtype": "float32",
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 1,
    "num_generations": 8,
    "num_train_epochs": 3.0,
    "learning_rate": 1e-6,
    "lr_scheduler_type": "linear",
    "weight_decay": 0.0,
    "adam_beta1": 0.9,
    "adam_beta2": 0.999,
    "max_grad_norm": 1.0,
    "gradient_checkpointing": True,
    "max_completion_length": 512,
    "temperature": 1.0,
    "beta": 0.0,
    "epsilon": 0.2,
    "loss_type": "dapo",
    "scale_rewards": "group",
    "importance_sampling_level": "token",
    "num_iterations": 1,
    "use_vllm": False,
    "vllm_mode": "colocate",
    "vllm_tensor_parallel_size": 1,
    "vllm_importance_sampling_correction": True,
    "vllm_importance_sampling_mode": "sequence_mask",
    "vllm_importance_sampling_clip_max": 3.0,
    "eval_strategy": "no",
    "eval_on_start": False,
    "save_strategy": "steps",
    "save_steps": 500,
    "lora_r": 16,
    "lora_alpha": 32,
    "lora_dropout": 0.05,
    "use_peft": False,
    "sync_ref_model": False,
    "ref_model_sync_steps": 512,
    "ref_model_mixup_alpha": 0.6,
}

# --- batches and steps -------------------------------------------------------------------------------


def _update(theirs: Theirs) -> int:
    """Completions an optimizer update."""
    each: int = theirs["per_device_train_batch_size"] * theirs["gradient_accumulation_steps"]
    return each * theirs.facts.processes


def _generation(theirs: Theirs) -> int:
    """Completions that are generated at once, under one policy."""
    if theirs["generation_batch_size"]:
        return int(theirs["generation_batch_size"])
    steps = theirs["steps_per_generation"] or theirs["gradient_accumulation_steps"]
    return int(theirs["per_device_train_batch_size"] * theirs.facts.processes * steps)


def _updates(theirs: Theirs) -> int:
    return max(_generation(theirs) // _update(theirs), 1)


def _batch_size(theirs: Theirs) -> Any:
    processes = theirs.facts.processes
    whole = max(_generation(theirs), _update(theirs))
    said = f"completions over {processes} process{'es' if processes > 1 else ''}"
    return Noted(whole, f"{said}, which --processes N changes; counts trajectories")


def _prompts(theirs: Theirs) -> int:
    return max(max(_generation(theirs), _update(theirs)) // int(theirs["num_generations"]), 1)


def _an_epoch(theirs: Theirs) -> int | None:
    return meaning.epoch(meaning.tasks(theirs, str(theirs["dataset_name"] or "")), _prompts(theirs))


def _steps(theirs: Theirs) -> int | None:
    if (theirs["max_steps"] or -1) > 0:
        return max(int(theirs["max_steps"]) // _updates(theirs), 1)
    each = _an_epoch(theirs)
    return max(int(theirs["num_train_epochs"] * each), 1) if each else None


def _max_steps(theirs: Theirs) -> Any:
    made = meaning.max_steps(_steps, lambda t: t["num_train_epochs"])(theirs)
    updates = _updates(theirs)
    return Noted(made, f"each of {updates} updates") if updates > 1 and isinstance(made, int) else made


def _all_updates(theirs: Theirs) -> int | None:
    """The schedule counts optimizer updates, here as there."""
    steps = _steps(theirs)
    return steps * _updates(theirs) if steps else None


def _warmup_count(theirs: Theirs) -> Any:
    return theirs["warmup_steps"]


def _counted(strategy: str, number: str, default: int | None = None) -> Any:
    """Steps between two evaluations or checkpoints; theirs count optimizer updates."""

    def make(theirs: Theirs) -> Any:
        how = theirs[strategy]
        if how in ("no", False, None):
            return Needless("off; see before and after, the last step is always saved")
        if how == "epoch":
            return meaning.every(lambda _: None, lambda _: 1, _an_epoch)(theirs)
        if how != "steps":
            return Lost(f"{how!r} has no counterpart")
        count = theirs[number] or default or 0
        if 0 < count < 1:
            total = _all_updates(theirs)
            if total is None:
                return Lost(f"a share of {count} of all steps, whose number is not known: give --tasks N")
            count = count * total
        return max(int(count) // _updates(theirs), 1) if count else Needless("not set there; our default holds")

    return make


# --- the model, its engine and devices ---------------------------------------------------------------


def _lora(key: str) -> Any:
    return lambda theirs: theirs[key] if theirs["use_peft"] else Needless("use_peft is off")


def _targets(theirs: Theirs) -> Any:
    given = theirs["lora_target_modules"]
    if not theirs["use_peft"]:
        return Needless("use_peft is off")
    return [] if given in (None, "all-linear", ["all-linear"]) else given


def _amp(theirs: Theirs) -> Any:
    """bf16 is their default unless fp16 is asked for."""
    if theirs["dtype"] not in ("float32", "auto"):
        return Noted(False, "the weights are in a short format already")
    return bool(theirs["fp16"]) or theirs["bf16"] is not False


def _amp_dtype(theirs: Theirs) -> Any:
    return "fp16" if theirs["fp16"] else "bf16"


def _backend(theirs: Theirs) -> Any:
    if theirs["deepspeed"]:
        return Partly("deepspeed", "DeepSpeed's own config is not read: see the options of the backend")
    if theirs.facts.processes == 1 and not theirs["fsdp"]:
        return Noted("torch", "one process")
    return "fsdp2"


def _engine(theirs: Theirs) -> Any:
    return "vllm" if theirs["use_vllm"] else Noted("torch", "use_vllm is off")


def _shares(theirs: Theirs) -> bool:
    return bool(theirs["use_vllm"]) and theirs["vllm_mode"] == "colocate"


def _placement(theirs: Theirs) -> Any:
    return "colocated" if _shares(theirs) else "disjoint"


def _infer_devices(theirs: Theirs) -> Any:
    if _shares(theirs):
        return theirs.facts.processes
    return theirs["vllm_tensor_parallel_size"] if theirs["use_vllm"] else 1


def _infer_axes(theirs: Theirs) -> Any:
    width, count = theirs["vllm_tensor_parallel_size"] or 1, _infer_devices(theirs)
    if width <= 1 or not theirs["use_vllm"]:
        return "dp"
    if count % width:
        return Partly("dp", f"vLLM is spread over {width} of {count} processes: say --processes N")
    return {"dp": count // width, "tp": width} if count > width else {"tp": width}


def _only_vllm(key: str) -> Any:
    return lambda theirs: theirs[key] if theirs["use_vllm"] and theirs[key] is not None else Needless("use_vllm is off")


# --- the objective -----------------------------------------------------------------------------------

_LOSSES = {"grpo": "grpo", "dapo": "dapo", "bnpo": "dapo", "dr_grpo": "dr-grpo", "cispo": "cispo"}
_BNPO = "bnpo averages over the tokens of a micro-batch, dapo over those of the batch"


def _objective(theirs: Theirs) -> Any:
    if theirs["importance_sampling_level"] == "sequence":
        return "gspo" if theirs["loss_type"] == "grpo" else Noted("gspo", "the ratio is a sequence's")
    name = _LOSSES.get(theirs["loss_type"])
    if name is None:
        return Partly("dapo", f"loss_type {theirs['loss_type']} has no counterpart: dapo is used")
    return Noted(name, _BNPO) if theirs["loss_type"] == "bnpo" else name


def _name(theirs: Theirs) -> str:
    made = _objective(theirs)
    return str(made.value if isinstance(made, Noted | Partly) else made)


def _clip_low(theirs: Theirs) -> Any:
    return Noted(1.0, "CISPO has no lower bound") if _name(theirs) == "cispo" else theirs["epsilon"]


def _clip_high(theirs: Theirs) -> Any:
    """CISPO's is the largest weight itself there, and what is above 1 here."""
    given = theirs["epsilon_high"] if theirs["epsilon_high"] is not None else theirs["epsilon"]
    return Noted(max(given - 1, 0), "the largest weight is 1 + clip_high") if _name(theirs) == "cispo" else given


def _scale(theirs: Theirs) -> Any:
    words = {True: "group", "group": "group", "batch": "batch", False: "none", "none": "none"}
    return choice(words, "the objective's default")(theirs["scale_rewards"])


def _reference(theirs: Theirs) -> Any:
    return {} if theirs["beta"] else Needless("beta is 0: no reference is needed")


def _reference_every(theirs: Theirs) -> Any:
    if not theirs["beta"] or not theirs["sync_ref_model"]:
        return Needless("the reference stays as it is")
    if theirs["ref_model_mixup_alpha"] != 1.0:
        return Lost("a reference is renewed whole or not at all: see objective.reference.every")
    return max(int(theirs["ref_model_sync_steps"]) // _updates(theirs), 1)


def _correction(make: Any) -> Any:
    """A setting of the weight between trainer and engine; without vLLM both are one model there."""

    def value(theirs: Theirs) -> Any:
        if not theirs["use_vllm"]:
            return Needless("use_vllm is off: the trainer's model generates there")
        if not theirs["vllm_importance_sampling_correction"]:
            return Lost("off there: here tokens are always weighted by the trainer's and the engine's probabilities")
        return make(theirs)

    return value


def _mode(theirs: Theirs) -> list[str]:
    return str(theirs["vllm_importance_sampling_mode"]).split("_")


def _cap(theirs: Theirs) -> Any:
    given = theirs["vllm_importance_sampling_cap"]
    return given if given is not None else theirs["vllm_importance_sampling_clip_max"]


# --- data --------------------------------------------------------------------------------------------

_REWARDS: dict[str, Any] = {
    "accuracy_reward": "math",
    "reasoning_accuracy_reward": "math",
    "think_format_reward": {"type": "format", "tags": ["think"]},
}


def _reward(theirs: Theirs) -> Any:
    given = theirs["reward_funcs"]
    names = [given] if isinstance(given, str) else given or []
    if not names:
        return Noted({"type": "exact"}, "no reward is named: put yours here")
    first = names[0]
    if len(names) > 1:
        more = f"one reward judges, the first; {', '.join(names[1:])}: a reward that adds others is a function of yours"
        return Partly(_one_reward(first), more)
    return _one_reward(first)


def _one_reward(name: str) -> Any:
    if name in _REWARDS:
        return _REWARDS[name]
    module, _, function = name.rpartition(".")
    return {"type": "function", "path": f"{module}:{function}"} if module else {"type": "function", "path": name}


def _evaluates(theirs: Theirs) -> bool:
    return theirs["eval_strategy"] not in ("no", False, None) or bool(theirs["eval_on_start"])


def _test_path(theirs: Theirs) -> Any:
    if not _evaluates(theirs):
        return Needless("nothing is evaluated")
    return meaning.records(theirs["dataset_name"] or "tasks", theirs["dataset_test_split"] or "test")


def _dataset(theirs: Theirs) -> Any:
    return meaning.records(theirs["dataset_name"] or "tasks", theirs["dataset_train_split"] or "train")


def _trackers(theirs: Theirs) -> Any:
    given = theirs["report_to"]
    names = [given] if isinstance(given, str) else list(given or [])
    known = [name for name in names if name in ("tensorboard", "wandb", "mlflow", "trackio")]
    other = [name for name in names if name not in (*known, "none", "all")]
    found = ["jsonl", *known]
    return Partly(found, f"there is no tracker {', '.join(other)}") if other else found


_BATCH = ("per_device_train_batch_size", "gradient_accumulation_steps", "steps_per_generation", "generation_batch_size")
_DATA = ("dataset_name", "dataset_train_split")
_CORRECTION = ("vllm_importance_sampling_correction", "vllm_importance_sampling_mode")
_CAP = ("vllm_importance_sampling_clip_max", "vllm_importance_sampling_cap")

RULES: tuple[Rule, ...] = (
    carry("run_name", "name"),
    drop("output_dir", "name", "runs are in runs/NAME-TIME"),
    carry("seed", "seed"),
    drop("data_seed", "seed", "one seed fixes everything"),
    drop("full_determinism", "seed", "one seed fixes everything"),
    derive(("model_name_or_path",), "model.type", lambda _: "hf", "a directory or hub id"),
    carry("model_name_or_path", "model.path"),
    carry("model_revision", "model.revision"),
    carry("trust_remote_code", "model.trust_remote_code"),
    carry("dtype", "model.dtype"),
    derive(("use_peft", "lora_r"), "model.lora.rank", _lora("lora_r"), "where use_peft is on"),
    derive(("lora_alpha",), "model.lora.alpha", _lora("lora_alpha"), "where use_peft is on"),
    derive(("lora_dropout",), "model.lora.dropout", _lora("lora_dropout"), "where use_peft is on"),
    derive(("lora_target_modules",), "model.lora.targets", _targets, "all-linear is []"),
    lose("lora_target_parameters", "model", "adapters are of linear layers"),
    lose("lora_modules_to_save", "model", "only adapters are trained"),
    drop("lora_task_type", "model", "causal language models"),
    lose("use_rslora", "model", "adapters are scaled by alpha / rank"),
    lose("use_dora", "model", "plain adapters are trained"),
    lose("load_in_8bit", "model", "weights are not quantized"),
    lose("load_in_4bit", "model", "weights are not quantized"),
    drop("bnb_4bit_*", "model", "weights are not quantized"),
    drop("use_bnb_nested_quant", "model", "weights are not quantized"),
    drop("attn_implementation", "model", "the backend chooses the attention"),
    lose("model_init_kwargs", "model", "see the options of model/hf"),
    lose("model_init_kwargs.*", "model", "see the options of model/hf"),
    drop("disable_dropout", "model", "there is no dropout in training here, but for adapters"),
    lose("cast_lm_head_to_fp32", "model", "logits are computed in the format of the weights"),
    lose("use_cpu", "platform", "write platform: cpu"),
    # resources
    derive(
        ("per_device_train_batch_size",),
        "resources.train.num_gpus",
        lambda theirs: Noted(theirs.facts.processes, "one device a process: --processes N"),
        "processes of the launcher",
    ),
    derive(("use_vllm", "vllm_tensor_parallel_size"), "resources.infer.num_gpus", _infer_devices, "devices of vLLM"),
    derive(("use_vllm", "vllm_tensor_parallel_size"), "resources.infer.parallel", _infer_axes, "tp"),
    derive(("use_vllm", "vllm_mode"), "placement", _placement, "colocate is colocated, server is disjoint"),
    lose("vllm_enable_sleep_mode", "placement", "engines keep their memory"),
    # inference
    derive(("use_vllm",), "inference.type", _engine, "vllm or torch"),
    carry("temperature", "inference.sampling.temperature"),
    carry("top_p", "inference.sampling.top_p"),
    carry("top_k", "inference.sampling.top_k", lambda k: max(int(k), 0)),
    carry("max_completion_length", "inference.sampling.max_new_tokens"),
    lose("min_p", "inference", "there is no min_p"),
    lose("repetition_penalty", "inference", "it would falsify log-probabilities", off=[1.0]),
    lose("generation_kwargs", "inference", "see inference.sampling"),
    lose("generation_kwargs.*", "inference", "see inference.sampling"),
    lose("cache_implementation", "inference", "the engine chooses its cache"),
    drop("use_transformers_paged", "inference", "the torch engine batches continuously"),
    drop("use_transformers_continuous_batching", "inference", "the torch engine batches continuously"),
    drop("transformers_continuous_batching_config*", "inference", "see the options of engine/torch"),
    derive(
        ("vllm_gpu_memory_utilization",),
        "inference.vllm.gpu_memory_utilization",
        _only_vllm("vllm_gpu_memory_utilization"),
        "as it is",
    ),
    derive(("vllm_max_model_length",), "inference.vllm.max_model_len", _only_vllm("vllm_max_model_length"), "as it is"),
    lose("vllm_model_impl", "inference", "vLLM's own models are used", off=["vllm"]),
    lose("vllm_structured_outputs_regex", "inference", "answers are free text"),
    drop("vllm_server_*", "inference", "engines are started by the run"),
    drop("vllm_group_port", "inference", "engines are started by the run"),
    drop("ds3_gather_for_generation", "inference", "weights reach engines by the transport"),
    # training
    derive(
        ("fsdp", "deepspeed", "per_device_train_batch_size"), "training.backend", _backend, "torch, or a sharded one"
    ),
    derive(_BATCH, "training.batch_size", _batch_size, "completions generated at once, over all processes"),
    derive(
        ("steps_per_generation", "generation_batch_size"), "training.updates", _updates, "optimizer updates of them"
    ),
    carry("learning_rate", "training.learning_rate"),
    derive(("max_steps", "num_train_epochs"), "training.max_steps", _max_steps, "updates / training.updates"),
    carry("max_grad_norm", "training.grad_clip", lambda norm: norm or None, "0 is off: null"),
    carry("gradient_checkpointing", "training.activation_checkpointing"),
    derive(("bf16", "fp16", "dtype"), "training.amp.enabled", _amp, "bf16 unless it is switched off"),
    derive(("fp16",), "training.amp.dtype", _amp_dtype, "fp16 or bf16"),
    carry(
        "optim",
        "training.optimizer.type",
        choice(dict.fromkeys(("adamw_torch", "adamw_torch_fused", "adamw_hf"), "adamw"), "adamw is used"),
    ),
    carry("weight_decay", "training.optimizer.weight_decay"),
    derive(
        ("adam_beta1", "adam_beta2"),
        "training.optimizer.betas",
        lambda theirs: [theirs["adam_beta1"], theirs["adam_beta2"]],
        "both",
    ),
    carry("adam_epsilon", "training.optimizer.eps"),
    carry(
        "lr_scheduler_type",
        "training.optimizer.schedule",
        choice(
            {
                "linear": "linear",
                "cosine": "cosine",
                "constant": "constant",
                "constant_with_warmup": "constant",
                "cosine_with_min_lr": "cosine",
            },
            "the rate is constant",
        ),
    ),
    carry("lr_scheduler_kwargs.min_lr_rate", "training.optimizer.min_ratio"),
    lose("lr_scheduler_kwargs*", "training", "see training.optimizer.min_ratio"),
    derive(
        ("warmup_steps", "warmup_ratio"),
        "training.optimizer.warmup_steps",
        meaning.warmup(_warmup_count, lambda theirs: theirs["warmup_ratio"], _all_updates),
        "below 1 it is a share of all steps",
    ),
    lose("optim_args", "training", "see the options of the optimizer"),
    lose("optim_target_modules", "training", "all weights have one optimizer"),
    lose("num_iterations", "training", "each completion is trained on once", off=[1]),
    drop("use_liger_kernel", "training", "log-probabilities never hold all logits here"),
    drop("gradient_checkpointing_kwargs*", "training", "the backend's affair"),
    drop("torch_compile*", "training", "the backend's affair"),
    drop("torch_empty_cache_steps", "training", "the backend's affair"),
    drop("tf32", "training", "the backend's affair"),
    drop("fsdp_config*", "training", "see the options of the backend"),
    drop("accelerator_config*", "training", "see the options of the backend"),
    lose("parallelism_config*", "resources", "see resources.train.parallel"),
    lose("neftune_noise_alpha", "training", "no noise is added"),
    lose("label_smoothing_factor", "training", "of supervised training", off=[0.0]),
    drop("ddp_*", "training", "the backend's affair"),
    drop("average_tokens_across_devices", "training", "the loss is always normalized over the whole batch"),
    # objective
    derive(("loss_type", "importance_sampling_level"), "objective.type", _objective, "by the loss's denominator"),
    carry("num_generations", "objective.group_size"),
    derive(("epsilon", "loss_type"), "objective.clip_low", _clip_low, "1 - clip_low"),
    derive(("epsilon_high", "epsilon"), "objective.clip_high", _clip_high, "epsilon if not set"),
    derive(("scale_rewards",), "objective.scale", _scale, "group, batch or none"),
    derive(
        ("loss_type",),
        "objective.dynamic_sampling",
        lambda theirs: False if _name(theirs) == "dapo" else Needless("only dapo replaces groups"),
        "TRL replaces no group",
    ),
    carry("beta", "objective.kl"),
    derive(("beta",), "objective.reference", _reference, "where beta is not 0"),
    derive(
        ("sync_ref_model", "ref_model_sync_steps", "ref_model_mixup_alpha"),
        "objective.reference.every",
        _reference_every,
        "whole renewal only",
    ),
    carry("entropy_coef", "objective.entropy"),
    carry("mask_truncated_completions", "objective.mask_truncated"),
    derive(_CAP, "objective.behaviour_cap", _correction(_cap), "vLLM's truncation"),
    derive(
        _CORRECTION,
        "objective.behaviour_level",
        _correction(lambda theirs: _mode(theirs)[0]),
        "token_* or sequence_*",
    ),
    derive(
        ("vllm_importance_sampling_mode", "vllm_importance_sampling_correction"),
        "objective.behaviour_excess",
        _correction(lambda theirs: _mode(theirs)[-1]),
        "*_truncate or *_mask",
    ),
    lose("vllm_importance_sampling_clip_min", "objective", "weights have no lower bound"),
    lose("delta", "objective", "there is no second bound of the ratio"),
    lose("sapo_*", "objective", "there is no SAPO", off=[1.0, 1.05]),
    lose("vespo_*", "objective", "there is no VESPO", off=[2.0, 3.0]),
    lose("top_entropy_quantile", "objective", "all tokens are trained on", off=[1.0]),
    lose("use_adaptive_entropy", "objective", "the coefficient is fixed"),
    drop("entropy_coef_*", "objective", "the coefficient is fixed"),
    drop("entropy_target", "objective", "the coefficient is fixed"),
    lose("off_policy_mask_threshold", "objective", "stale tokens are weighted, not masked by divergence"),
    drop("use_bias_correction_kl", "objective", "the divergence's gradient is always corrected"),
    lose("multi_objective_aggregation", "objective", "one reward is normalized", off=["sum_then_normalize"]),
    lose("router_aux_loss_coef", "objective", "no router loss is added"),
    # environments
    derive(_DATA, "environments.0.type", lambda t: meaning.environment(str(t["dataset_name"])), "gsm8k by its name"),
    derive(_DATA, "environments.0.path", _dataset, "JSON Lines"),
    derive(("dataset_test_split", "eval_strategy"), "environments.0.test_path", _test_path, "where it is evaluated"),
    derive(("reward_funcs", "dataset_name"), "environments.0.reward", _reward, "accuracy_reward is math"),
    lose("reward_model_name_or_path", "environments", "see the rewards `model` and `remote`"),
    lose("reward_weights", "environments", "one reward judges: a function may weigh several"),
    lose("dataset_config", "environments", "export this configuration of the data set"),
    lose("datasets.*", "environments", "write one environment a data set, with its weight"),
    lose("datasets", "environments", "write one environment a data set, with its weight"),
    lose("test_split_size", "environments", "see test_fraction"),
    drop("dataset_streaming", "environments", "records are read one at a time"),
    drop("streaming", "environments", "records are read one at a time"),
    drop("dataset_num_proc", "environments", "records are read one at a time"),
    drop("shuffle_dataset", "environments", "tasks are drawn at random under the seed"),
    lose("chat_template_kwargs*", "environments", "the model's chat template has no arguments here"),
    lose("max_tool_calling_iterations", "environments", "tools are an environment of their own"),
    drop("dataloader_*", "environments", "tasks are read in the rollout workers"),
    drop("remove_unused_columns", "environments", "a reward sees the whole record"),
    drop("max_prompt_length", "environments", "a prompt that is too long is an error"),
    drop("ignore_bias_buffers", "training", "the backend's affair"),
    drop("pad_to_multiple_of", "training", "batches are packed"),
    drop("auto_find_batch_size", "training", "micro-batches are sized by tokens"),
    # pipeline
    derive(
        ("use_vllm",),
        "pipeline.max_staleness",
        lambda _: Noted(0, "TRL generates and trains in turns; more lets both overlap"),
        "always 0",
    ),
    # evaluation and checkpoints
    derive(("eval_steps", "eval_strategy"), "evaluation.every", _counted("eval_strategy", "eval_steps", 0), "updates"),
    derive(("eval_on_start",), "evaluation.before", lambda theirs: bool(theirs["eval_on_start"]), "false if not set"),
    derive(("eval_strategy",), "evaluation.after", _evaluates, "where eval_strategy is not no"),
    lose("num_generations_eval", "evaluation", "an evaluation asks once a task"),
    drop("per_device_eval_batch_size", "evaluation", "engines batch by themselves"),
    drop("eval_*", "evaluation", "see evaluation"),
    drop("*_eval", "evaluation", "see evaluation"),
    derive(("save_steps", "save_strategy"), "checkpoint.every", _counted("save_strategy", "save_steps"), "updates"),
    carry("save_total_limit", "checkpoint.keep"),
    drop("save_*", "checkpoint", "a checkpoint holds everything that a resumed run needs"),
    drop("resume_from_checkpoint", "checkpoint", "areal-plugins run --resume"),
    lose("load_best_model_at_end", "checkpoint", "see the evaluations, and eval --checkpoint"),
    lose("metric_for_best_model", "checkpoint", "see the evaluations"),
    lose("push_to_hub", "checkpoint", "checkpoints are Hugging Face directories: upload one"),
    drop("hub_*", "checkpoint", "checkpoints are Hugging Face directories: upload one"),
    # trackers
    derive(("report_to",), "trackers", _trackers, "those there are here"),
    lose("log_completions_hub_repo", "trackers", "every trajectory is in the run's trajectories/"),
    drop("log_*", "trackers", "every step and trajectory is recorded"),
    drop("logging_*", "trackers", "every step is recorded"),
    drop("num_completions_to_print", "trackers", "areal-plugins rollouts"),
    drop("include_*", "trackers", "every step is recorded"),
    drop("project", "trackers", "see the options of the tracker"),
    drop("trackio_*", "trackers", "see the options of the tracker"),
    drop("disable_tqdm", "trackers", "the terminal decides"),
    drop("do_train", "training", "run trains"),
    drop("do_eval", "evaluation", "see evaluation"),
    drop("do_predict", "evaluation", "see evaluation"),
    drop("local_rank", "resources", "the executor's affair"),
    drop("skip_memory_metrics", "trackers", "see the trainer's metrics"),
    drop("debug", "training", "AREAL_DEBUG_MODE=1"),
)

FRAMEWORK = Framework(
    "trl",
    "a GRPO config of TRL",
    "trl/trainer/grpo_config.py of huggingface/trl, July 2026",
    RULES,
    DEFAULTS,
)
