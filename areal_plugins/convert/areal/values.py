"""What several keys mean together, and the defaults that rules read."""

from __future__ import annotations

import re
from typing import Any

from areal_plugins.convert import meaning
from areal_plugins.convert.table import (
    Lost,
    Needless,
    Noted,
    Partly,
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


def an_epoch(theirs: Theirs) -> int | None:
    """Steps an epoch, where the number of tasks is known."""
    known = meaning.tasks(theirs, str(theirs["train_dataset.path"] or ""))
    return meaning.epoch(known, theirs["train_dataset.batch_size"])


def steps(theirs: Theirs) -> int | None:
    """Steps of the run, where they are known."""
    if theirs["total_train_steps"]:
        return int(theirs["total_train_steps"])
    each = an_epoch(theirs)
    return theirs["total_train_epochs"] * each if each else None


def batch_size(theirs: Theirs) -> Any:
    """`training.batch_size`: prompts x samples."""
    prompts, samples = theirs["train_dataset.batch_size"], theirs["gconfig.n_samples"]
    return Noted(prompts * samples, f"{prompts} prompts of {samples} samples; counts trajectories")


def objective(theirs: Theirs) -> Any:
    """Token-level mean over the batch, whatever the advantage (`ppo_actor_loss_fn`): the weights of `dapo`."""
    if theirs.has("critic"):
        return "ppo"
    if theirs["actor.importance_sampling_level"] == "sequence":
        return Partly("gspo", "answers weigh the same in gspo, where their tokens do")
    if theirs["actor.reward_norm.mean_level"] == "group":
        return Noted("dapo", "advantages within the group, the loss a mean over the batch's tokens")
    return Noted("reinforce++", "advantages over the batch, the loss a mean over the batch's tokens")


def _objective_name(theirs: Theirs) -> str:
    made = objective(theirs)
    return str(made.value if isinstance(made, Noted | Partly) else made)


def _in_groups(theirs: Theirs) -> bool:
    return _objective_name(theirs) in ("dapo", "gspo")


def scale(theirs: Theirs) -> Any:
    """`objective.scale`: what rewards are divided by."""
    if not _in_groups(theirs):
        return Needless("the objective normalizes over the batch")
    return {"group": "group", "batch": "batch"}.get(theirs["actor.reward_norm.std_level"], "none")


def clip_high(theirs: Theirs) -> Any:
    """`objective.clip_high`: eps_clip if not set."""
    return theirs["actor.eps_clip_higher"] or theirs["actor.eps_clip"]


def dynamic_sampling(theirs: Theirs) -> Any:
    """`objective.dynamic_sampling`: DAPO's."""
    if _objective_name(theirs) != "dapo":
        return Needless("only dapo replaces groups")
    if theirs["dynamic_bs"]:
        return Noted(True, "here groups are replaced until the batch is full; there it stays smaller")
    return Noted(False, "no group is replaced unless the workflow filters: see dynamic_bs")


def cap(theirs: Theirs) -> Any:
    """`objective.behaviour_cap`: the largest weight."""
    if not theirs["actor.use_decoupled_loss"]:
        return Needless("use_decoupled_loss is off: nothing is bounded")
    if theirs["actor.rejection_sampling.metric"] not in (None, "ratio"):
        return Lost("only the importance ratio itself is bounded; the cap is our default")
    if not theirs.has("actor.rejection_sampling") and theirs["actor.behav_imp_weight_cap"] is None:
        return Noted(None, "no rejection_sampling: weights are not bounded")
    if theirs.has("actor.rejection_sampling"):
        return theirs["actor.rejection_sampling.upper"] or 5.0
    return theirs["actor.behav_imp_weight_cap"]


def excess(theirs: Theirs) -> Any:
    """`objective.behaviour_excess`: mask or clamp."""
    if not theirs["actor.use_decoupled_loss"]:
        return Needless("use_decoupled_loss is off: nothing is bounded")
    return "truncate" if theirs["actor.rejection_sampling.action"] == "clamp" else "mask"


def behaviour_level(theirs: Theirs) -> Any:
    """`objective.behaviour_level`: mean over a sequence is geometric."""
    if theirs["actor.rejection_sampling.level"] != "sequence":
        return "token"
    return "sequence" if theirs["actor.rejection_sampling.agg"] == "sum" else "geometric"


def decoupled(theirs: Theirs) -> Any:
    """`objective.decoupled`: PPO's two."""
    if theirs["actor.use_decoupled_loss"]:
        return True
    if theirs["actor.recompute_logprob"]:
        return Noted(True, "recompute_logprob without use_decoupled_loss clips against the recomputed policy")
    return False


def kl(theirs: Theirs) -> Any:
    """`objective.kl`: coefficient."""
    if not theirs.has("ref") and "actor.kl_ctl" not in theirs:
        return Noted(0.0, "there is no ref section: no divergence is measured")
    return theirs["actor.kl_ctl"]


def _has_kl(theirs: Theirs) -> bool:
    made = kl(theirs)
    return bool(made.value if isinstance(made, Noted) else made)


def reference(theirs: Theirs) -> Any:
    """`objective.reference`: the model before training."""
    return {} if _has_kl(theirs) else Needless("kl is 0: no reference is needed")


def kl_in(theirs: Theirs) -> Any:
    """`objective.kl_in`: theirs is always in the reward."""
    return "reward" if _has_kl(theirs) else Needless("kl is 0")


def estimator(theirs: Theirs) -> Any:
    """`objective.kl_estimator`: k1."""
    given = theirs["actor.kl_estimator"]
    return "k1" if given == "k1" else Lost(f"{given} in the reward has not the gradient of the divergence: k1 is used")


def temperature(theirs: Theirs) -> Any:
    """`inference.sampling.temperature`: 0 is greedy."""
    return 0.0 if theirs["gconfig.greedy"] else theirs["gconfig.temperature"]


def schedule(given: str) -> Any:
    """Their word for the schedule as ours."""
    return given if given in ("constant", "linear", "cosine") else Lost(f"{given!r}: the rate is constant")


def betas(theirs: Theirs) -> Any:
    """`training.optimizer.betas`: both."""
    return [theirs["actor.optimizer.beta1"], theirs["actor.optimizer.beta2"]]


def evaluates(theirs: Theirs) -> bool:
    """Whether anything is evaluated."""
    return theirs["valid_dataset.path"] is not None


def test_path(theirs: Theirs) -> Any:
    """`environments.0.test_path`: JSON Lines."""
    return meaning.records(theirs["valid_dataset.path"], "test") if evaluates(theirs) else Needless("no valid_dataset")


def after(theirs: Theirs) -> Any:
    """`evaluation.after`: where there is a valid_dataset."""
    return Noted(evaluates(theirs), "" if evaluates(theirs) else "no valid_dataset")


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


def trainer(theirs: Theirs) -> Any:
    """`training.backend`: fsdp is fsdp2."""
    found = _strategy(theirs, "train")
    if not found:
        return Lost("cannot be read as BACKEND:d1t1...; our default backend is used")
    name = found[0] or "fsdp"
    return "fsdp2" if name == "fsdp" else Partly("fsdp2", f"{name} has no counterpart: fsdp2 shards, too")


def engine_name(theirs: Theirs) -> Any:
    """`inference.type`: sglang or vllm."""
    found = _strategy(theirs, "infer")
    return found[0] if found else Lost("cannot be read as ENGINE:d1t1...; our default engine is used")


def devices(role: str) -> Any:
    """Devices of a pool: `train` or `infer`."""

    def make(theirs: Theirs) -> Any:
        found = _strategy(theirs, role)
        return meaning.devices(found[1]) if found else Lost("cannot be read as NAME:d1t1...; one device is used")

    return make


def parallel(role: str) -> Any:
    """Axes of a pool: `train` or `infer`."""

    def make(theirs: Theirs) -> Any:
        found = _strategy(theirs, role)
        return found[1] if found else Lost("cannot be read as NAME:d1t1...; one device is used")

    return make


def max_concurrent(theirs: Theirs) -> Any:
    """`inference.max_concurrent`: rollouts x samples / engines: counts completions of each engine."""
    rollouts, samples = theirs["rollout.max_concurrent_rollouts"], theirs["gconfig.n_samples"]
    if rollouts is None:
        return Needless("not set there; our default holds")
    found = _strategy(theirs, "infer")
    engines = found[1].get("dp", 1) if found else 1
    each = -(-rollouts * samples // engines)
    return Noted(each, f"{rollouts} rollouts x {samples} samples / {engines} engines")


def placement(theirs: Theirs) -> Any:
    """`placement`: `|` shares devices."""
    shared = "|" in str(theirs["allocation_mode"] or "") or theirs["rollout.scheduling_strategy.type"] == "colocation"
    return "colocated" if shared else "disjoint"


def trackers(theirs: Theirs) -> Any:
    """`trackers`: those that are not disabled."""
    found = ["jsonl"]
    found += [name for name in ("wandb", "trackio") if theirs[f"stats_logger.{name}.mode"] not in (None, "disabled")]
    return [*found, "tensorboard"] if theirs["stats_logger.tensorboard.path"] else found


ALLOCATION = ("actor.backend", "allocation_mode")
ENGINE = ("rollout.backend", "allocation_mode")
DATA = ("train_dataset.path",)
MODES = ("stats_logger.wandb.mode", "stats_logger.trackio.mode", "stats_logger.tensorboard.path")
BOUND = ("actor.rejection_sampling", "actor.behav_imp_weight_cap", "actor.use_decoupled_loss")
_LORA = "use_lora is off"


def adapter(key: str) -> Any:
    """A setting of adapters, where they are used."""
    return lambda theirs: theirs[key] if theirs["actor.use_lora"] and theirs[key] else Needless(_LORA)
