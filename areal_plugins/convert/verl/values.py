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
from areal_plugins.convert.verl.defaults import ACTOR, MODEL, ROLLOUT

# --- how long ----------------------------------------------------------------------------------------


def _files(theirs: Theirs) -> str:
    given = theirs["data.train_files"]
    return str(given[0] if isinstance(given, list) and given else given or "")


def run_steps(theirs: Theirs) -> int | None:
    """`training.max_steps`: epochs x (tasks // prompts a step)."""
    if theirs["trainer.total_training_steps"]:
        return int(theirs["trainer.total_training_steps"])
    each = meaning.epoch(meaning.tasks(theirs, _files(theirs)), theirs["data.train_batch_size"])
    return theirs["trainer.total_epochs"] * each if each else None


def grad_clip(theirs: Theirs) -> Any:
    """`training.grad_clip`: the actor's wins over its optimizer's."""
    return theirs[f"{ACTOR}.grad_clip" if f"{ACTOR}.grad_clip" in theirs else f"{ACTOR}.optim.clip_grad"] or 1.0


ENGINE_OPTIONS = (
    ("vllm", "gpu_memory_utilization", "gpu_memory_utilization"),
    ("sglang", "gpu_memory_utilization", "mem_fraction_static"),
    ("vllm", "max_model_len", "max_model_len"),
    ("sglang", "max_model_len", "context_length"),
    ("vllm", "enforce_eager", "enforce_eager"),
)
"""An engine, an option there, and what the engine itself calls it."""


def of(engine: str, key: str) -> Any:
    """An option of an engine, where it is the one that is used."""

    def make(theirs: Theirs) -> Any:
        if theirs[f"{ROLLOUT}.name"] != engine:
            return Needless(f"the engine is not {engine}")
        value = theirs[f"{ROLLOUT}.{key}"]
        return Needless("not set there; our default holds") if value is None else value

    return make


def updates(theirs: Theirs) -> int:
    """Both counts are of prompts."""
    return max(int(theirs["data.train_batch_size"]) // int(theirs[f"{ACTOR}.ppo_mini_batch_size"]), 1)


def all_updates(theirs: Theirs) -> int | None:
    """Optimizer updates of the run, where its steps are known: what the schedule counts, here as there."""
    steps = run_steps(theirs)
    return steps * updates(theirs) if steps else None


def batch_size(theirs: Theirs) -> Any:
    """`training.batch_size`: prompts x samples."""
    prompts, samples = theirs["data.train_batch_size"], theirs[f"{ROLLOUT}.n"]
    return Noted(prompts * samples, f"{prompts} prompts of {samples} samples; counts trajectories")


def frequency(given: int) -> Any:
    """Steps between two; -1 is never."""
    return given if given > 0 else Needless("never there; our default holds")


# --- the model and its devices -----------------------------------------------------------------------

_DTYPES = {
    **dict.fromkeys(("fp32", "float32"), "float32"),
    **dict.fromkeys(("bf16", "bfloat16"), "bfloat16"),
    **dict.fromkeys(("fp16", "float16"), "float16"),
}


def dtype(theirs: Theirs) -> Any:
    """`model.dtype`: fp32 or bf16."""
    return choice(_DTYPES, "auto is used")(theirs[f"{ACTOR}.fsdp_config.model_dtype"])


def amp(theirs: Theirs) -> Any:
    """`training.amp.enabled`: bfloat16 over fp32 weights."""
    return Noted(dtype(theirs) == "float32", "FSDP computes in bfloat16 there")


def adapter(key: str) -> Any:
    """A setting of adapters, where they are used."""
    return lambda theirs: theirs[key] if theirs[f"{MODEL}.lora_rank"] else Needless("lora_rank is 0: no adapters")


def targets(theirs: Theirs) -> Any:
    """`model.lora.targets`: all-linear is []."""
    given = theirs[f"{MODEL}.target_modules"]
    if not theirs[f"{MODEL}.lora_rank"]:
        return Needless("lora_rank is 0: no adapters")
    return [] if given == "all-linear" else [given] if isinstance(given, str) else given


def backend(theirs: Theirs) -> Any:
    """`training.backend`: fsdp and fsdp2 are fsdp2."""
    given = theirs[f"{ACTOR}.strategy"]
    if given in ("fsdp", "fsdp2"):
        return "fsdp2"
    return Partly("fsdp2", f"{given} has no counterpart: fsdp2 shards, too")


def _devices(theirs: Theirs) -> int:
    return int(theirs["trainer.nnodes"] * theirs["trainer.n_gpus_per_node"])


def spread(axis: str, key: str) -> Any:
    """An axis of some size within all devices, the rest being data-parallel."""

    def make(theirs: Theirs) -> Any:
        size, count = int(theirs[key] or 1), _devices(theirs)
        if size <= 1:
            return "dp"
        if count % size:
            return Lost(f"{size} does not divide {count} devices: all of them are data-parallel")
        return {axis: size} if count == size else {"dp": count // size, axis: size}

    return make


def executor(theirs: Theirs) -> Any:
    """`executor`: ray for more than one machine."""
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


def objective(theirs: Theirs) -> Any:
    """`objective.type`: grpo by its denominator: token-mean is dapo, seq-mean-token-mean grpo, sums dr-grpo."""
    estimator, loss = theirs["algorithm.adv_estimator"], theirs[f"{ACTOR}.policy_loss.loss_mode"]
    aggregation = theirs[f"{ACTOR}.loss_agg_mode"]
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


def _objective_name(theirs: Theirs) -> str:
    made = objective(theirs)
    return str(made.value if isinstance(made, Noted | Partly) else made)


def _in_groups(theirs: Theirs) -> bool:
    return _objective_name(theirs) in ("grpo", "dapo", "dr-grpo", "gspo", "cispo")


def scale(theirs: Theirs) -> Any:
    """`objective.scale`: group or none."""
    if not _in_groups(theirs):
        return Needless("only of objectives within groups")
    return "group" if theirs["algorithm.norm_adv_by_std_in_grpo"] else "none"


def baseline(theirs: Theirs) -> Any:
    """`objective.baseline`: of reinforce++."""
    grouped = theirs["algorithm.adv_estimator"] == "reinforce_plus_plus_baseline"
    return "group" if grouped else Needless("only of reinforce_plus_plus_baseline")


def clip_at(side: str) -> Any:
    """The bound on one side."""

    def make(theirs: Theirs) -> Any:
        given = theirs[f"{ACTOR}.clip_ratio_{side}"]
        own = f"{ACTOR}.clip_ratio_{side}" in theirs
        return given if own or f"{ACTOR}.clip_ratio" not in theirs else theirs[f"{ACTOR}.clip_ratio"]

    return make


def dynamic_sampling(theirs: Theirs) -> Any:
    """`objective.dynamic_sampling`: DAPO's."""
    if _objective_name(theirs) != "dapo":
        return Needless("only dapo replaces groups")
    return bool(theirs["algorithm.filter_groups.enable"])


def max_length(theirs: Theirs) -> Any:
    """`objective.max_length`: of dr-grpo."""
    given = theirs[f"{ACTOR}.loss_scale_factor"]
    return given if given and _objective_name(theirs) == "dr-grpo" else Needless("the longest answer allowed, as here")


def only_ppo(key: str) -> Any:
    """A setting of the critic, where there is one."""
    return lambda theirs: theirs[key] if _objective_name(theirs) == "ppo" else Needless("only ppo has a critic")


# --- the divergence from the reference ---------------------------------------------------------------

_ESTIMATORS = {
    **dict.fromkeys(("kl", "k1", "kl+", "k1+"), "k1"),
    **dict.fromkeys(("mse", "k2", "mse+", "k2+"), "k2"),
    **dict.fromkeys(("low_var_kl", "k3", "low_var_kl+", "k3+"), "k3"),
}
KL_KEYS = (
    f"{ACTOR}.use_kl_loss",
    f"{ACTOR}.kl_loss_coef",
    "algorithm.use_kl_in_reward",
    "algorithm.kl_ctrl.kl_coef",
)


def kl(theirs: Theirs) -> Any:
    """`objective.kl`: the one that is switched on."""
    in_loss, in_reward = theirs[f"{ACTOR}.use_kl_loss"], theirs["algorithm.use_kl_in_reward"]
    if in_loss and in_reward:
        return Partly(theirs[f"{ACTOR}.kl_loss_coef"], "the divergence is in the loss or in the reward: it is the loss")
    if in_loss:
        return theirs[f"{ACTOR}.kl_loss_coef"]
    return theirs["algorithm.kl_ctrl.kl_coef"] if in_reward else 0.0


def _has_kl(theirs: Theirs) -> bool:
    made = kl(theirs)
    return bool(made.value if isinstance(made, Partly) else made)


def kl_in(theirs: Theirs) -> Any:
    """`objective.kl_in`: loss or reward."""
    if not _has_kl(theirs):
        return Needless("no divergence is measured")
    return "loss" if theirs[f"{ACTOR}.use_kl_loss"] else "reward"


def loss_estimator(theirs: Theirs) -> Any:
    """`objective.kl_estimator`: k1, k2 or k3."""
    if not theirs[f"{ACTOR}.use_kl_loss"]:
        return Needless("use_kl_loss is off")
    return choice(_ESTIMATORS, "the objective's default")(theirs[f"{ACTOR}.kl_loss_type"])


def reward_estimator(theirs: Theirs) -> Any:
    """`objective`: k1."""
    if theirs["algorithm.kl_penalty"] in ("kl", "k1") or not theirs["algorithm.use_kl_in_reward"]:
        return Needless("k1, or not in the reward")
    return Lost("in the reward only k1 has the gradient of the divergence: k1 is used")


def reference(theirs: Theirs) -> Any:
    """`objective.reference`: where a divergence is measured."""
    return {} if _has_kl(theirs) else Needless("no divergence is measured: no reference is needed")


# --- the weight of tokens that another policy drew ---------------------------------------------------

CORRECTION = "algorithm.rollout_correction"


def correction(make: Any) -> Any:
    """A setting of the weight of tokens that another policy drew, where it is used."""

    def value(theirs: Theirs) -> Any:
        if not theirs[f"{CORRECTION}.rollout_is"]:
            return Lost("off there: here tokens are always weighted by the trainer's and the engine's probabilities")
        return make(theirs)

    return value


# --- data and figures --------------------------------------------------------------------------------


def environment(_: Theirs) -> Any:
    """`environments.0.type`: records of any data set."""
    return Noted("jsonl", "its records hold messages and ground truths, whatever the data set")


def reward(theirs: Theirs) -> Any:
    """`environments.0.reward`: function; by data_source there."""
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


def first_file(key: str, split: str) -> Any:
    """The first of their files."""

    def make(theirs: Theirs) -> Any:
        made, given = meaning.records(theirs[key], split), theirs[key]
        if isinstance(given, list) and len(given) > 1:
            path = made.value if isinstance(made, Noted) else made
            return Partly(
                path, f"one environment reads one file; for {', '.join(map(str, given[1:]))} add environments"
            )
        return made

    return make


def test_path(theirs: Theirs) -> Any:
    """`environments.0.test_path`: JSON Lines."""
    return first_file("data.val_files", "test")(theirs) if theirs["data.val_files"] else Needless("no val_files")


def before(theirs: Theirs) -> bool:
    """`evaluation.before`: true if not set."""
    return bool(theirs["trainer.val_before_train"]) and theirs["data.val_files"] is not None


def trackers(theirs: Theirs) -> Any:
    """`trackers`: those there are here."""
    given = theirs["trainer.logger"]
    names = [given] if isinstance(given, str) else list(given)
    known = [name for name in names if name in ("tensorboard", "wandb", "mlflow", "trackio")]
    other = [name for name in names if name not in (*known, "console")]
    found = ["jsonl", *known]
    return Partly(found, f"there is no tracker {', '.join(other)}") if other else found


NO_SAMPLING = Needless("an evaluation is greedy and as long as an answer")
CORRECTION_KEYS = (f"{CORRECTION}.rollout_is", f"{CORRECTION}.rollout_is_threshold")
STRATEGY = f"{ACTOR}.strategy"
POOL = ("trainer.nnodes", "trainer.n_gpus_per_node")
