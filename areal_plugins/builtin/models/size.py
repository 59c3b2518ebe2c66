"""How large a model is, without loading it: for `explain`, so free of torch and numpy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import prod
from pathlib import Path

from areal_plugins import ModelShape
from areal_plugins.builtin.models import HfOptions, TinyOptions

SPECIAL = ("<pad>", "<eos>")
"""The special tokens of `tiny`, in the order of their ids."""


def hf_parameters(options: HfOptions) -> int | None:
    """Counted from the headers of the directory's safetensors; None for a hub id and for other formats.

    A file starts with its header's length, a little-endian u64, and the header in JSON:
    https://huggingface.co/docs/safetensors (Format).
    """
    files = sorted(Path(options.path).glob("*.safetensors"))
    return sum(map(_in_file, files)) if files else None


def hf_shape(options: HfOptions) -> ModelShape | None:
    """From the directory's config.json; None for a hub id, and for a config that names sizes otherwise."""
    file = Path(options.path).expanduser() / "config.json"
    config = json.loads(file.read_text()) if file.is_file() else {}
    config = config.get("text_config", config)
    try:
        heads, hidden = config["num_attention_heads"], config["hidden_size"]
        head = config.get("head_dim") or hidden // heads
        return ModelShape(
            layers=config["num_hidden_layers"],
            hidden=hidden,
            inner=config.get("intermediate_size") or 4 * hidden,
            kv_width=head * (config.get("num_key_value_heads") or heads),
            positions=config["max_position_embeddings"],
        )
    except KeyError:
        return None


def tiny_shape(options: TinyOptions) -> ModelShape:
    """From the options."""
    return ModelShape(
        layers=options.layers,
        hidden=options.hidden_size,
        inner=options.intermediate,
        kv_width=options.hidden_size // options.heads * options.kv_heads,
        positions=options.max_positions,
    )


def tiny_parameters(options: TinyOptions) -> int:
    """Counted from the shapes."""
    return sum(prod(shape) for _, shape in shapes(options))


def _in_file(file: Path) -> int:
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        header = json.loads(stream.read(length))
    return sum(prod(entry["shape"]) for name, entry in header.items() if name != "__metadata__")


def shapes(options: TinyOptions) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Every parameter of the decoder under its Hugging Face name, in order."""
    hidden, tokens = options.hidden_size, vocabulary(options)
    yield "model.embed_tokens.weight", (tokens, hidden)
    for layer in range(options.layers):
        for name, shape in _layer_shapes(options):
            yield f"model.layers.{layer}.{name}", shape
    yield "model.norm.weight", (hidden,)
    if not options.tie_embeddings:
        yield "lm_head.weight", (tokens, hidden)


def _layer_shapes(options: TinyOptions) -> Iterator[tuple[str, tuple[int, ...]]]:
    hidden, wide = options.hidden_size, options.intermediate
    narrow = hidden // options.heads * options.kv_heads
    for name, rows in (("q", hidden), ("k", narrow), ("v", narrow)):
        yield f"self_attn.{name}_proj.weight", (rows, hidden)
        if options.architecture == "qwen2":
            yield f"self_attn.{name}_proj.bias", (rows,)
    yield "self_attn.o_proj.weight", (hidden, hidden)
    yield "mlp.gate_proj.weight", (wide, hidden)
    yield "mlp.up_proj.weight", (wide, hidden)
    yield "mlp.down_proj.weight", (hidden, wide)
    yield "input_layernorm.weight", (hidden,)
    yield "post_attention_layernorm.weight", (hidden,)


def vocabulary(options: TinyOptions) -> int:
    """Tokens: the special ones, and one a character."""
    return len(SPECIAL) + len(options.alphabet)
