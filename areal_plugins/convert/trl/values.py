"""What several keys mean together, and the defaults that rules read."""

from __future__ import annotations

from typing import Any

from areal_plugins.convert import meaning
from areal_plugins.convert.table import (
    Lost,
    Needless,
    Noted,
    Partly,
    choice,
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


def updates_of_a_batch(theirs: Theirs) -> int:
    """`training.updates`: optimizer updates of them."""
    return max(_generation(theirs) // _update(theirs), 1)


def batch_size(theirs: Theirs) -> Any:
    """`training.batch_size`: completions generated at once, over all processes."""
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
        return max(int(theirs["max_steps"]) // updates_of_a_batch(theirs), 1)
    each = _an_epoch(theirs)
    return max(int(theirs["num_train_epochs"] * each), 1) if each else None


def max_steps(theirs: Theirs) -> Any:
    """`training.max_steps`: updates / training.updates."""
    made = meaning.max_steps(_steps, lambda t: t["num_train_epochs"])(theirs)
    updates = updates_of_a_batch(theirs)
    return Noted(made, f"each of {updates} updates") if updates > 1 and isinstance(made, int) else made


def all_updates(theirs: Theirs) -> int | None:
    """The schedule counts optimizer updates, here as there."""
    steps = _steps(theirs)
    return steps * updates_of_a_batch(theirs) if steps else None


def warmup_count(theirs: Theirs) -> Any:
    """Steps of warm-up, or a share below 1."""
    return theirs["warmup_steps"]


def how_often(strategy: str, number: str, default: int | None = None) -> Any:
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
            total = all_updates(theirs)
            if total is None:
                return Lost(f"a share of {count} of all steps, whose number is not known: give --tasks N")
            count = count * total
        return (
            max(int(count) // updates_of_a_batch(theirs), 1) if count else Needless("not set there; our default holds")
        )

    return make


# --- the model, its engine and devices ---------------------------------------------------------------


def adapter(key: str) -> Any:
    """A setting of adapters, where they are used."""
    return lambda theirs: theirs[key] if theirs["use_peft"] else Needless("use_peft is off")


def targets(theirs: Theirs) -> Any:
    """`model.lora.targets`: all-linear is []."""
    given = theirs["lora_target_modules"]
    if not theirs["use_peft"]:
        return Needless("use_peft is off")
    return [] if given in (None, "all-linear", ["all-linear"]) else given


def amp(theirs: Theirs) -> Any:
    """bf16 is their default unless fp16 is asked for."""
    if theirs["dtype"] not in ("float32", "auto"):
        return Noted(False, "the weights are in a short format already")
    return bool(theirs["fp16"]) or theirs["bf16"] is not False


def amp_dtype(theirs: Theirs) -> Any:
    """`training.amp.dtype`: fp16 or bf16."""
    return "fp16" if theirs["fp16"] else "bf16"


def backend(theirs: Theirs) -> Any:
    """`training.backend`: torch, or a sharded one."""
    if theirs["deepspeed"]:
        return Partly("deepspeed", "DeepSpeed's own config is not read: see the options of the backend")
    if theirs.facts.processes == 1 and not theirs["fsdp"]:
        return Noted("torch", "one process")
    return "fsdp2"


def engine(theirs: Theirs) -> Any:
    """`inference.type`: vllm or torch."""
    return "vllm" if theirs["use_vllm"] else Noted("torch", "use_vllm is off")


def _shares(theirs: Theirs) -> bool:
    return bool(theirs["use_vllm"]) and theirs["vllm_mode"] == "colocate"


def placement(theirs: Theirs) -> Any:
    """`placement`: colocate is colocated, server is disjoint."""
    return "colocated" if _shares(theirs) else "disjoint"


def infer_devices(theirs: Theirs) -> Any:
    """`resources.infer.num_gpus`: devices of vLLM."""
    if _shares(theirs):
        return theirs.facts.processes
    return theirs["vllm_tensor_parallel_size"] if theirs["use_vllm"] else 1


def infer_axes(theirs: Theirs) -> Any:
    """`resources.infer.parallel`: tp."""
    width, count = theirs["vllm_tensor_parallel_size"] or 1, infer_devices(theirs)
    if width <= 1 or not theirs["use_vllm"]:
        return "dp"
    if count % width:
        return Partly("dp", f"vLLM is spread over {width} of {count} processes: say --processes N")
    return {"dp": count // width, "tp": width} if count > width else {"tp": width}


def only_vllm(key: str) -> Any:
    """An option of vLLM, where it is used."""
    return lambda theirs: theirs[key] if theirs["use_vllm"] and theirs[key] is not None else Needless("use_vllm is off")


# --- the objective -----------------------------------------------------------------------------------

_LOSSES = {"grpo": "grpo", "dapo": "dapo", "bnpo": "dapo", "dr_grpo": "dr-grpo", "cispo": "cispo"}
_BNPO = "bnpo averages over the tokens of a micro-batch, dapo over those of the batch"


def objective(theirs: Theirs) -> Any:
    """`objective.type`: by the loss's denominator."""
    if theirs["importance_sampling_level"] == "sequence":
        return "gspo" if theirs["loss_type"] == "grpo" else Noted("gspo", "the ratio is a sequence's")
    name = _LOSSES.get(theirs["loss_type"])
    if name is None:
        return Partly("dapo", f"loss_type {theirs['loss_type']} has no counterpart: dapo is used")
    return Noted(name, _BNPO) if theirs["loss_type"] == "bnpo" else name


def objective_name(theirs: Theirs) -> str:
    """The objective by its name alone."""
    made = objective(theirs)
    return str(made.value if isinstance(made, Noted | Partly) else made)


def clip_low(theirs: Theirs) -> Any:
    """`objective.clip_low`: 1 - clip_low."""
    return Noted(1.0, "CISPO has no lower bound") if objective_name(theirs) == "cispo" else theirs["epsilon"]


def clip_high(theirs: Theirs) -> Any:
    """CISPO's is the largest weight itself there, and what is above 1 here."""
    given = theirs["epsilon_high"] if theirs["epsilon_high"] is not None else theirs["epsilon"]
    return (
        Noted(max(given - 1, 0), "the largest weight is 1 + clip_high") if objective_name(theirs) == "cispo" else given
    )


def scale(theirs: Theirs) -> Any:
    """`objective.scale`: group, batch or none."""
    words = {True: "group", "group": "group", "batch": "batch", False: "none", "none": "none"}
    return choice(words, "the objective's default")(theirs["scale_rewards"])


def reference(theirs: Theirs) -> Any:
    """`objective.reference`: where beta is not 0."""
    return {} if theirs["beta"] else Needless("beta is 0: no reference is needed")


def reference_every(theirs: Theirs) -> Any:
    """`objective.reference.every`: whole renewal only."""
    if not theirs["beta"] or not theirs["sync_ref_model"]:
        return Needless("the reference stays as it is")
    if theirs["ref_model_mixup_alpha"] != 1.0:
        return Lost("a reference is renewed whole or not at all: see objective.reference.every")
    return max(int(theirs["ref_model_sync_steps"]) // updates_of_a_batch(theirs), 1)


def correction(make: Any) -> Any:
    """A setting of the weight between trainer and engine; without vLLM both are one model there."""

    def value(theirs: Theirs) -> Any:
        if not theirs["use_vllm"]:
            return Needless("use_vllm is off: the trainer's model generates there")
        if not theirs["vllm_importance_sampling_correction"]:
            return Lost("off there: here tokens are always weighted by the trainer's and the engine's probabilities")
        return make(theirs)

    return value


def mode(theirs: Theirs) -> list[str]:
    """Level and action of the truncation, as in `token_mask`."""
    return str(theirs["vllm_importance_sampling_mode"]).split("_")


def cap(theirs: Theirs) -> Any:
    """`objective.behaviour_cap`: the largest weight."""
    given = theirs["vllm_importance_sampling_cap"]
    return given if given is not None else theirs["vllm_importance_sampling_clip_max"]


# --- data --------------------------------------------------------------------------------------------

_REWARDS: dict[str, Any] = {
    "accuracy_reward": "math",
    "reasoning_accuracy_reward": "math",
    "think_format_reward": {"type": "format", "tags": ["think"]},
}


def reward(theirs: Theirs) -> Any:
    """`environments.0.reward`: accuracy_reward is math."""
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


def evaluates(theirs: Theirs) -> bool:
    """Whether anything is evaluated."""
    return theirs["eval_strategy"] not in ("no", False, None) or bool(theirs["eval_on_start"])


def test_path(theirs: Theirs) -> Any:
    """`environments.0.test_path`: where it is evaluated."""
    if not evaluates(theirs):
        return Needless("nothing is evaluated")
    return meaning.records(theirs["dataset_name"] or "tasks", theirs["dataset_test_split"] or "test")


def dataset(theirs: Theirs) -> Any:
    """`environments.0.path`: JSON Lines."""
    return meaning.records(theirs["dataset_name"] or "tasks", theirs["dataset_train_split"] or "train")


def trackers(theirs: Theirs) -> Any:
    """`trackers`: those there are here."""
    given = theirs["report_to"]
    names = [given] if isinstance(given, str) else list(given or [])
    known = [name for name in names if name in ("tensorboard", "wandb", "mlflow", "trackio")]
    other = [name for name in names if name not in (*known, "none", "all")]
    found = ["jsonl", *known]
    return Partly(found, f"there is no tracker {', '.join(other)}") if other else found


BATCH = ("per_device_train_batch_size", "gradient_accumulation_steps", "steps_per_generation", "generation_batch_size")
DATA = ("dataset_name", "dataset_train_split")
CORRECTION = ("vllm_importance_sampling_correction", "vllm_importance_sampling_mode")
CAP = ("vllm_importance_sampling_clip_max", "vllm_importance_sampling_cap")
