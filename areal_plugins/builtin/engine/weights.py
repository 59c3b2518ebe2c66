"""Replacing a model's parameters in place, by their Hugging Face names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from areal_plugins import TransportError

_NAMED = 3
"""Missing tensors an error names."""


class Parameters:
    """The tensors of a model by every name they have: tied ones have several, any of which will do."""

    def __init__(self, model: Any) -> None:
        self._model = type(model).__name__
        self._tensors: dict[str, torch.Tensor] = dict(model.state_dict(keep_vars=True))
        self._needed = {p.data_ptr(): name for name, p in model.named_parameters()}

    def update(self) -> Update:
        """Begin to replace all of them."""
        return Update(self._model, self._tensors, dict(self._needed))


class Update:
    """One replacement: `copy` each tensor, then `finish`."""

    def __init__(self, model: str, tensors: dict[str, torch.Tensor], missing: dict[int, str]) -> None:
        self._model, self._tensors, self._missing = model, tensors, missing
        self._copied: set[int] = set()

    @property
    def begun(self) -> bool:
        """Whether any parameter is already replaced."""
        return bool(self._copied)

    @torch.no_grad()
    def copy(self, name: str, tensor: torch.Tensor) -> None:
        """Replace the parameter `name`.

        Raises:
            TransportError: there is none, its shape differs, or it is tied to one with other values.

        """
        target = self._tensors.get(name)
        if target is None:
            raise TransportError("torch", f"{self._model} has no parameter {name}")
        if target.shape != tensor.shape:
            shapes = f"{tuple(tensor.shape)} instead of {tuple(target.shape)}"
            raise TransportError("torch", f"tensor {name} arrived with shape {shapes}")
        if target.data_ptr() in self._copied:
            self._check_tied(name, target, tensor)
        target.copy_(tensor)
        self._copied.add(target.data_ptr())
        self._missing.pop(target.data_ptr(), None)

    def _check_tied(self, name: str, target: torch.Tensor, tensor: torch.Tensor) -> None:
        if not torch.equal(target, tensor.to(target)):
            raise TransportError("torch", f"tensor {name} is tied to another in {self._model} but has other values")

    def finish(self) -> None:
        """Raises `TransportError` naming what never arrived."""
        if self._missing:
            names = list(self._missing.values())
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            raise TransportError("torch", f"tensors did not arrive: {', '.join(names[:_NAMED])}{more}")


def read_directory(model: Any, directory: Path) -> list[tuple[str, torch.Tensor]]:
    """The parameters in a Hugging Face directory, all checked.

    transformers reads them, because names in files may differ from names in memory.

    Raises:
        TransportError: the directory does not hold exactly this model.

    """
    try:
        fresh, report = type(model).from_pretrained(
            directory,
            config=model.config,
            dtype=model.dtype,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
            local_files_only=True,
        )
    except (OSError, ValueError) as error:
        raise TransportError("torch", f"{directory}: {error}") from error
    problems = {
        "lacks": report["missing_keys"],
        "holds what the model has not": report["unexpected_keys"],
        "has another shape for": [e if isinstance(e, str) else e[0] for e in report["mismatched_keys"]],
    }
    for problem, names in problems.items():
        if names:
            raise TransportError("torch", f"{directory} {problem}: {', '.join(sorted(map(str, names))[:_NAMED])}")
    return list(fresh.named_parameters())
