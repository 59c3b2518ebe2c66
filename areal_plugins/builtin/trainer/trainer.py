"""The `torch` trainer: one rank, one device, any transformers causal LM."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import attrs
import torch
from torch import Tensor

from areal_core.contexts import StagePlan, TrainerContext
from areal_core.data import Batch
from areal_core.errors import CheckpointError
from areal_plugins import ComponentError, InputError
from areal_plugins.builtin import device_memory
from areal_plugins.builtin.dtypes import resolve_dtype
from areal_plugins.builtin.trainer import TorchTrainerOptions, export, figures, state
from areal_plugins.builtin.trainer.allocator import keep_freed_memory
from areal_plugins.builtin.trainer.lora import add_adapters
from areal_plugins.builtin.trainer.loss_scale import LossScale
from areal_plugins.builtin.trainer.model import check_packing, load_model, recompute_activations
from areal_plugins.builtin.trainer.policy import Policy
from areal_plugins.builtin.trainer.randomness import RandomStream
from areal_plugins.builtin.trainer.sizing import token_budget
from areal_plugins.builtin.trainer.stage import Stage
from areal_plugins.builtin.trainer.step import Step
from areal_plugins.builtin.trainer.units import flatten
from areal_plugins.builtin.trainer.value_model import ValueModel

_AMP = {"bf16": torch.bfloat16, "fp16": torch.float16}


class TorchTrainer:
    """`protocols.Trainer`. Sharded backends fit the same protocol: see `step.py` for what ranks would sum."""

    def __init__(self, options: TorchTrainerOptions, context: TrainerContext) -> None:
        if context.place.size > 1:
            raise InputError("resources.train", "the torch trainer has one rank", "take one device, or another backend")
        torch.set_num_threads(context.place.threads)
        keep_freed_memory()
        self._context = context
        self._device = torch.device(context.place.device)
        self._random = RandomStream(self._device, context.seed)
        weights, compute = formats(context)
        self._policy = Policy(load_model(context.model, weights, self._device), compute, options.logits_mib << 20)
        check_packing(self._policy, context.model)
        self._prepare(context)
        width = compute.itemsize
        self._budget = context.micro_batch_tokens or token_budget(
            self._policy.model.config, width, context.activation_checkpointing, self._device
        )
        self._scale = LossScale.of(context.amp)
        self._critic: ValueModel | None = None
        self._stage: Stage | None = None

    def begin_stage(self, stage: StagePlan) -> None:
        self._stage = Stage(stage, self._policy, self._critic)
        self._critic = self._stage.critic or self._critic
        if self._critic is not None:
            self._critic.train(self._policy.model.training)

    def train(self, batch: Batch) -> Mapping[str, float]:
        stage = self._begun("train")
        units = flatten(batch)
        self._check_tokens(units.tokens.max(), units.tokens.min(), batch.step)
        with self._random.active():
            return figures.finite(Step(self._policy, stage, self._scale, units, self._budget, batch.grad_limit).run())

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        return export.canonical(self._policy.model)

    def save_model(self, directory: Path) -> Callable[[], None]:
        return export.saving(self._policy.model, self._context.model, directory)

    def save_state(self, directory: Path) -> Callable[[], None]:
        stage = self._begun("save_state")
        plain = {
            "stage": stage.plan.name,
            "batches": stage.batches,
            "steps": stage.steps,
            "scale": attrs.asdict(self._scale),
            "random": self._random.states,
            "optimizers": [learner.optimizer.state_dict() for learner in stage.every_learner],
        }
        return partial(state.write, directory, state.copied(self._tensors(stage)), state.copied(plain))

    def load_state(self, directory: Path) -> None:
        stage = self._begun("load_state")
        plain = state.read_plain(directory)
        if plain["stage"] != stage.plan.name:
            problem = f"it was saved in stage {plain['stage']!r}, not in {stage.plan.name!r}"
            raise CheckpointError(str(directory), problem)
        if self._critic is None and state.holds(directory, "critic"):
            self._critic = ValueModel(self._policy)
        for name, tensors in self._tensors(stage).items():
            state.read_into(directory, name, tensors)
        for learner, saved in zip(stage.every_learner, plain["optimizers"], strict=True):
            learner.optimizer.load_state_dict(saved)
        stage.batches, stage.steps = plain["batches"], plain["steps"]
        self._scale = LossScale(**plain["scale"])
        self._random.states = plain["random"]

    def memory(self) -> float | None:
        return device_memory.share(self._device)

    def relieve(self) -> None:
        device_memory.empty_cache(self._device)

    def close(self) -> None:
        vars(self).clear()

    def _prepare(self, context: TrainerContext) -> None:
        """Adapters and checkpointing; the mode that both of them need to be in force."""
        model = self._policy.model
        if context.lora is not None:
            with self._random.active():
                add_adapters(model, context.lora)
        if context.activation_checkpointing:
            recompute_activations(model)
        model.train(context.activation_checkpointing or bool(context.lora and context.lora.dropout))

    def _tensors(self, stage: Stage) -> dict[str, Mapping[str, Tensor]]:
        """All weights that a resume needs, by file; a critic also in a stage that rests it, for a later one."""
        tensors: dict[str, Mapping[str, Tensor]] = {"policy": self._policy.trainable}
        if stage.reference is not None:
            tensors["reference"] = stage.reference.values
        if self._critic is not None:
            tensors["critic"] = self._critic.trainable
        return tensors

    def _check_tokens(self, most: int, least: int, step: int) -> None:
        vocabulary = self._policy.head(1.0).weight.shape[0]
        if least < 0 or most >= vocabulary:
            wrong = least if least < 0 else most
            raise InputError(f"batch {step}", f"token {wrong} is not among the model's {vocabulary}")

    def _begun(self, operation: str) -> Stage:
        if self._stage is None:
            raise ComponentError("trainer/torch", operation, "no stage has begun")
        return self._stage


def formats(context: TrainerContext) -> tuple[torch.dtype, torch.dtype]:
    """The format of the weights, and that of matrix products.

    Left to `auto`, weights stay float32, so that small updates are not rounded away, and products
    are in what the device does fast.
    """
    device = context.place.device
    named = resolve_dtype(context.dtype, device)
    weights = torch.float32 if context.dtype == "auto" else named
    if context.amp.get("enabled"):
        return weights, _AMP[str(context.amp.get("dtype", "bf16"))]
    return weights, named
