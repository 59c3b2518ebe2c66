"""What a resume needs: files that hold tensors and plain values only, nothing that runs when it is read."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from areal_core.errors import CheckpointError

_PLAIN = "trainer.pt"


def copied(value: Any) -> Any:
    """`value` as it is now, whatever becomes of it: its tensors in the processor's memory, nothing shared."""
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True).contiguous()
    if isinstance(value, Mapping):
        return {key: copied(part) for key, part in value.items()}
    if isinstance(value, tuple):
        return tuple(copied(part) for part in value)
    if isinstance(value, list):
        return [copied(part) for part in value]
    return copy.deepcopy(value)


def write(directory: Path, tensors: Mapping[str, Mapping[str, Tensor]], plain: Mapping[str, Any]) -> None:
    """Write each of `tensors` as `NAME.safetensors`, and `plain` (optimizer states, counters) beside them."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, values in tensors.items():
        save_file(dict(values), directory / f"{name}.safetensors")
    torch.save(dict(plain), directory / _PLAIN)


def read_plain(directory: Path) -> dict[str, Any]:
    """What `write` was given as `plain`.

    Raises:
        CheckpointError: the file is missing or damaged.

    """
    path = directory / _PLAIN
    try:
        plain: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise CheckpointError(str(path), f"it cannot be read: {error}") from error
    return plain


def holds(directory: Path, name: str) -> bool:
    """Whether `write` was given `name` among the tensors."""
    return (directory / f"{name}.safetensors").is_file()


@torch.no_grad()
def read_into(directory: Path, name: str, tensors: Mapping[str, Tensor]) -> None:
    """Copy `NAME.safetensors` into `tensors`, in place.

    Raises:
        CheckpointError: the file is missing or damaged, or of another model.

    """
    path = directory / f"{name}.safetensors"
    try:
        saved = load_file(path)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(str(path), f"it cannot be read: {error}") from error
    if differing := sorted(saved.keys() ^ tensors.keys()):
        raise CheckpointError(str(path), f"it is of another model: {differing[0]} is only in one of them")
    for key, tensor in tensors.items():
        if saved[key].shape != tensor.shape:
            problem = f"it is of another model: {key} has shape {tuple(saved[key].shape)}, not {tuple(tensor.shape)}"
            raise CheckpointError(str(path), problem)
        tensor.copy_(saved[key])
