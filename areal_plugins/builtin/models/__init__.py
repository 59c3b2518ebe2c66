"""Model sources: `hf` (a directory or hub id) and `tiny` (small, random start)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from attrs import field, frozen

from areal_plugins import CheckContext, Finding, ModelCapabilities, ModelDescriptor, ModelShape, Severity
from areal_plugins.builtin.room import room

PRINTABLE = "".join(map(chr, range(32, 127))) + "\n"
"""Printable ASCII and the line feed."""


@frozen
class HfOptions:
    """A Hugging Face model."""

    path: str = field(
        metadata={"doc": "Directory with config.json and safetensors, or a hub id such as org/name.", "path": "maybe"}
    )
    revision: str | None = field(default=None, metadata={"doc": "Branch, tag or commit of a hub id."})
    trust_remote_code: bool = field(default=False, metadata={"doc": "Run Python code that comes with the model."})
    allow_pickle: bool = field(
        default=False, metadata={"doc": "Accept pytorch_model.bin where there are no safetensors; converted once."}
    )


@frozen
class TinyOptions:
    """A small decoder with random weights; each character of `alphabet` is one token."""

    architecture: Literal["qwen2", "llama"] = field(default="qwen2", metadata={"doc": "Family of decoders."})
    hidden_size: int = field(default=64, metadata={"doc": "Width of the residual stream.", "ge": 2})
    layers: int = field(default=2, metadata={"doc": "Decoder layers.", "ge": 1})
    heads: int = field(default=2, metadata={"doc": "Attention heads.", "ge": 1})
    kv_heads: int = field(default=2, metadata={"doc": "Key and value heads.", "ge": 1})
    intermediate: int = field(default=128, metadata={"doc": "Width of the feed-forward layers.", "ge": 1})
    alphabet: str = field(default=PRINTABLE, metadata={"doc": "ASCII characters, one token each."})
    max_positions: int = field(default=512, metadata={"doc": "Longest sequence in tokens.", "ge": 1})
    tie_embeddings: bool = field(default=True, metadata={"doc": "One matrix for input and output embeddings."})
    initializer_range: float = field(default=0.02, metadata={"doc": "Standard deviation of the random start.", "gt": 0})
    chat_template: str | None = field(default=None, metadata={"doc": "Jinja template that renders messages."})


def is_local(path: str) -> bool:
    """Whether `path` can only mean a directory: it exists, or is not of the form `name` or `org/name`."""
    return Path(path).exists() or path.startswith((".", "/", "~")) or path.count("/") > 1 or "\\" in path


def check_hf(context: CheckContext) -> Iterable[Finding]:
    """A local model that is not on this machine, or is not a model."""
    options: HfOptions = context.options
    where = (*context.path, "path")
    if is_local(options.path):
        directory = Path(options.path).expanduser()
        for problem in _local_problems(directory):
            yield Finding("missing-model", problem, where, severity=Severity.UNAVAILABLE)
        if _spread(context):
            from areal_plugins.builtin.models.fit import misfits, sizes_of  # rarely needed

            yield from misfits(context.spec, sizes_of(directory))


def check_tiny(context: CheckContext) -> Iterable[Finding]:
    """Sizes that do not divide, and alphabets that cannot be one token a character."""
    options: TinyOptions = context.options
    for key, problem in tiny_problems(options):
        yield Finding("bad-shape" if key != "alphabet" else "bad-alphabet", problem, (*context.path, key))
    yield from room(context, options.max_positions, (*context.path, "max_positions"))
    if _spread(context):
        from areal_plugins.builtin.models.fit import misfits  # rarely needed

        yield from misfits(context.spec, {"heads": options.heads, "kv_heads": options.kv_heads})


def _spread(context: CheckContext) -> bool:
    """Whether the model lies on more than one device."""
    resources = context.spec.resources
    return max(resources.train.devices, resources.infer.devices) > 1


def tiny_problems(options: TinyOptions) -> Iterable[tuple[str, str]]:
    """The option at fault and what is wrong with it."""
    if options.hidden_size % (2 * options.heads):
        yield "heads", f"{options.heads} heads do not divide hidden_size {options.hidden_size} into even parts"
    if options.heads % options.kv_heads:
        yield "kv_heads", f"{options.kv_heads} does not divide heads {options.heads}"
    if not options.alphabet:
        yield "alphabet", "it is empty"
    if strange := sorted({c for c in options.alphabet if not c.isascii()}):
        yield "alphabet", f"{strange[0]!r} is not an ASCII character"
    if double := sorted({c for c in options.alphabet if options.alphabet.count(c) > 1}):
        yield "alphabet", f"{double[0]!r} stands in it twice"


def _local_problems(directory: Path) -> Iterable[str]:
    if not directory.is_dir():
        yield f"there is no directory {directory}"
    elif not (directory / "config.json").is_file():
        yield f"{directory} has no config.json"


def _hf_parameters(options: HfOptions) -> int | None:
    from areal_plugins.builtin.models.size import hf_parameters  # when asked

    return hf_parameters(options)


def _tiny_parameters(options: TinyOptions) -> int:
    from areal_plugins.builtin.models.size import tiny_parameters  # when asked

    return tiny_parameters(options)


def _hf_shape(options: HfOptions) -> ModelShape | None:
    from areal_plugins.builtin.models.size import hf_shape  # when asked

    return hf_shape(options)


def _tiny_shape(options: TinyOptions) -> ModelShape:
    from areal_plugins.builtin.models.size import tiny_shape  # when asked

    return tiny_shape(options)


_TORCH = ("transformers>=4.56", "safetensors>=0.5")

DESCRIPTORS: tuple[ModelDescriptor, ...] = (
    ModelDescriptor(
        name="hf",
        summary="A Hugging Face model, from a directory or a hub",
        factory="areal_plugins.builtin.models.hf:HfSource",
        options=HfOptions,
        requires=_TORCH,
        check=check_hf,
        parameters=_hf_parameters,
        shape=_hf_shape,
    ),
    ModelDescriptor(
        name="tiny",
        summary="A small decoder with random weights and one token a character",
        factory="areal_plugins.builtin.models.tiny:TinySource",
        options=TinyOptions,
        capabilities=ModelCapabilities(random_start=True),
        requires=_TORCH,
        check=check_tiny,
        parameters=_tiny_parameters,
        shape=_tiny_shape,
    ),
)
