"""The `torch` trainer and its optimizers."""

from __future__ import annotations

from attrs import field, frozen

from areal_plugins import OptimizerDescriptor, TrainerCapabilities, TrainerDescriptor
from areal_plugins.builtin.trainer import check


@frozen
class TorchTrainerOptions:
    """Options of the `torch` trainer."""

    logits_mib: int = field(
        default=256,
        metadata={"doc": "Memory for probabilities kept for the backward pass; what is beyond is recomputed.", "ge": 0},
    )


@frozen
class AdamWOptions:
    """Options of `adamw`."""

    weight_decay: float = field(
        default=0.01, metadata={"doc": "Decoupled decay of matrices; norms and biases have none.", "ge": 0}
    )
    betas: tuple[float, float] = field(default=(0.9, 0.95), metadata={"doc": "Decay of both moments."})
    eps: float = field(default=1e-8, metadata={"doc": "Added to the root of the second moment.", "gt": 0})


DESCRIPTORS: tuple[TrainerDescriptor, ...] = (
    TrainerDescriptor(
        name="torch",
        summary="Any transformers causal LM on one device: packed batches, group prefixes computed once.",
        factory="areal_plugins.builtin.trainer.trainer:TorchTrainer",
        options=TorchTrainerOptions,
        capabilities=TrainerCapabilities(offers=("tensors", "hf-dir"), lora=True, reference=True, critic=True),
        check=check.trainer,
        requires=("torch>=2.6", "transformers>=4.56", "safetensors>=0.5"),
    ),
)

OPTIMIZERS: tuple[OptimizerDescriptor, ...] = (
    OptimizerDescriptor(
        name="adamw",
        summary="Adam with decoupled weight decay.",
        factory="areal_plugins.builtin.trainer.optimizer:adamw",
        options=AdamWOptions,
        requires=("torch>=2.6",),
        check=check.betas,
    ),
)
