"""Low-rank adapters through peft, and the weights with adapters merged in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from areal_core.contexts import LoraPlan
from areal_plugins import InputError

_NAME = "default"
_BASE = ".base_layer"
"""Where peft puts the layer that it wraps."""


def add_adapters(model: Any, plan: LoraPlan) -> None:
    """Freeze `model` and add trainable adapters to the linear layers that `plan.targets` names (none: all).

    A target is a module's name or the end of it (`q_proj`, `mlp.up_proj`). The output layer is left
    alone. Adapters are at least float32.

    Raises:
        InputError: a target names no linear layer; lists those there are.

    """
    from peft import LoraConfig, inject_adapter_in_model

    config = LoraConfig(
        r=plan.rank,
        lora_alpha=plan.alpha,  # type: ignore[arg-type]  # peft divides by the rank, whatever the type
        lora_dropout=plan.dropout,
        target_modules=_targets(model, plan.targets),
        task_type="CAUSAL_LM",
    )
    inject_adapter_in_model(config, model, adapter_name=_NAME)
    for parameter in model.parameters():
        if parameter.requires_grad and parameter.dtype in (torch.bfloat16, torch.float16):
            parameter.data = parameter.data.float()


def merged(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Each parameter and saved buffer under the name it has without adapters, tied ones once, adapters merged."""
    named = model.named_modules() if hasattr(model, "peft_config") else ()
    layers = {f"{name}.weight": module for name, module in named if hasattr(module, "lora_A")}
    seen: set[int] = set()
    for name, tensor in model.state_dict(keep_vars=True).items():
        if ".lora_" in name or id(tensor) in seen:
            continue
        seen.add(id(tensor))
        canonical = name.replace(_BASE, "")
        layer: Any = layers.get(canonical)
        value = tensor.detach()
        yield canonical, value if layer is None else value + layer.get_delta_weight(_NAME).detach().to(value.dtype)


def adapter(model: Any, base: str) -> tuple[Any, dict[str, Tensor]]:
    """peft's config and weights of the adapters alone, as its `from_pretrained` wants them."""
    from peft import get_peft_model_state_dict

    config = model.peft_config[_NAME]
    config.base_model_name_or_path, config.inference_mode = base, True
    state = get_peft_model_state_dict(model, adapter_name=_NAME)
    return config, {f"base_model.model.{name}": tensor.contiguous() for name, tensor in state.items()}


def _targets(model: Any, wanted: tuple[str, ...]) -> list[str]:
    output = model.get_output_embeddings()
    linear = [name for name, m in model.named_modules() if isinstance(m, nn.Linear) and m is not output]
    kinds = sorted({name.rsplit(".", 1)[-1] for name in linear})
    for target in wanted:
        if not any(f".{name}".endswith(f".{target}") for name in linear):
            raise InputError("model.lora.targets", f"{target!r} names no linear layer", f"there are {', '.join(kinds)}")
    return list(wanted) or kinds
