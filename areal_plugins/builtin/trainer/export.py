"""A Hugging Face directory of the model as it is now."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from areal_plugins.builtin.trainer.lora import adapter, merged
from areal_plugins.builtin.trainer.model import without_progress
from areal_plugins.builtin.trainer.state import copied

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


def saving(model: Any, source: Path, directory: Path) -> Callable[[], None]:
    """What writes weights (adapters merged, and beside them in `adapter/`), config, and whatever else `source` holds.

    The weights are copied now, to the processor's memory, so that the model may be trained on meanwhile.
    """
    weights = copied(dict(merged(model)))
    adapters = copied(adapter(model, str(source))) if hasattr(model, "peft_config") else None

    def save() -> None:
        directory.mkdir(parents=True, exist_ok=True)
        for file in sorted(source.iterdir()):
            if file.is_file() and not file.name.endswith(_WRITTEN):
                shutil.copyfile(file, directory / file.name)
        with without_progress():
            model.save_pretrained(directory, state_dict=weights)
        if adapters is not None:
            config, values = adapters
            config.save_pretrained(directory / "adapter")
            save_file(values, directory / "adapter" / "adapter_model.safetensors", {"format": "pt"})

    return save
