"""A Hugging Face directory of the model as it is now."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from areal_plugins.builtin.trainer.lora import adapter, merged
from areal_plugins.builtin.trainer.model import without_progress

_WRITTEN = (".safetensors", ".bin", ".pt", ".index.json", ".gguf", ".h5", ".msgpack", ".onnx")
"""Endings of the source's own weights, which are written anew."""


def canonical(model: Any) -> Iterator[tuple[str, Tensor]]:
    """Weights under the names in which checkpoints of this architecture hold them."""
    if not getattr(model, "_weight_conversions", None):
        yield from merged(model)
        return
    # transformers 5 fuses some checkpoints' tensors on loading (experts, for one) and knows the way back
    from transformers.core_model_loading import revert_weight_conversion

    yield from revert_weight_conversion(model, dict(merged(model))).items()


def save(model: Any, source: Path, directory: Path) -> None:
    """Write weights (adapters merged, and beside them in `adapter/`), config, and whatever else `source` holds."""
    directory.mkdir(parents=True, exist_ok=True)
    for file in sorted(source.iterdir()):
        if file.is_file() and not file.name.endswith(_WRITTEN):
            shutil.copyfile(file, directory / file.name)
    with without_progress():
        model.save_pretrained(directory, state_dict={name: tensor.contiguous() for name, tensor in merged(model)})
    if hasattr(model, "peft_config"):
        config, weights = adapter(model, str(source))
        config.save_pretrained(directory / "adapter")
        save_file(weights, directory / "adapter" / "adapter_model.safetensors", {"format": "pt"})
