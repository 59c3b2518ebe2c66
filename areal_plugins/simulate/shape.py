"""The sizes of a model that its costs depend on."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen

from areal_core.errors import InputError
from areal_core.spec.resolve import Draft
from areal_plugins.explain.memory import Size, model_size

BFLOAT16 = 2
"""Bytes of one number, unless the model says otherwise."""


@frozen
class Shape:
    """A dense decoder; `kv_width` numbers are one layer's keys of one token, and as many its values."""

    parameters: float = field(metadata={"doc": "Parameters.", "gt": 0})
    layers: int = field(metadata={"doc": "Decoder layers.", "ge": 1})
    hidden: int = field(metadata={"doc": "Width of the residual stream.", "ge": 1})
    kv_width: int = field(metadata={"doc": "Numbers in one layer's keys of one token.", "ge": 1})
    width: int = field(default=BFLOAT16, metadata={"doc": "Bytes of a number.", "ge": 1})

    @property
    def weights(self) -> float:
        """Bytes of all parameters."""
        return self.parameters * self.width

    @property
    def kv_bytes(self) -> int:
        """Bytes that one token takes in the cache."""
        return 2 * self.layers * self.kv_width * self.width


KNOWN: Mapping[str, Shape] = {
    "qwen2.5-0.5b": Shape(0.494e9, 24, 896, 128),
    "qwen2.5-1.5b": Shape(1.544e9, 28, 1536, 256),
    "deepseek-r1-distill-qwen-1.5b": Shape(1.777e9, 28, 1536, 256),
    "qwen2.5-7b": Shape(7.616e9, 28, 3584, 512),
    "deepseek-r1-distill-qwen-7b": Shape(7.616e9, 28, 3584, 512),
    "qwen2.5-32b": Shape(32.764e9, 64, 5120, 1024),
    "deepseek-r1-distill-qwen-32b": Shape(32.764e9, 64, 5120, 1024),
    "qwen3-0.6b": Shape(0.596e9, 28, 1024, 1024),
    "qwen3-1.7b": Shape(1.721e9, 28, 2048, 1024),
    "qwen3-8b": Shape(8.191e9, 36, 4096, 1024),
    "qwen3-14b": Shape(14.768e9, 40, 5120, 1024),
    "qwen3-32b": Shape(32.762e9, 64, 5120, 1024),
    "llama-3.1-8b": Shape(8.030e9, 32, 4096, 1024),
    "smollm2-135m": Shape(0.135e9, 30, 576, 192),
}
"""From the models' own config.json files, for models that are not on this machine."""


def shape_of(draft: Draft, named: str | None = None) -> Shape:
    """The spec's model: by its files, else by its name; or the model that `named` says.

    Raises:
        InputError: neither says how large it is.

    """
    if named is not None:
        return _known(named)
    size = model_size(draft)
    path = str(draft.spec.model.options.get("path", ""))
    found = _by_name(path, draft.spec.model.name)
    if size is not None and size.shape is not None:
        return _measured(size)
    if found is not None:
        return found
    raise InputError(
        f"model {path or draft.spec.model.type}",
        "its sizes are not known: it is not on this machine, and its name is none of those shipped",
        f"give a directory with config.json and weights, or --model with one of {', '.join(KNOWN)}",
    )


def _measured(size: Size) -> Shape:
    assert size.shape is not None
    shape = size.shape
    return Shape(float(size.parameters), shape.layers, shape.hidden, shape.kv_width)


def _known(named: str) -> Shape:
    found = _by_name(named)
    if found is None:
        raise InputError("--model", f"no sizes are shipped for {named!r}", f"one of {', '.join(KNOWN)}")
    return found


def _by_name(*texts: str | None) -> Shape | None:
    """The known model that a text ends with, after its organization and before a suffix such as -Instruct."""
    for text in filter(None, texts):
        word = text.rpartition("/")[2].lower()
        fitting = [name for name in KNOWN if word == name or word.startswith(f"{name}-")]
        if fitting:
            return KNOWN[max(fitting, key=len)]
    return None
