from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest

from areal_plugins import protocols

WIDTH, WIDE, HEADS, VOCABULARY = 8, 16, 2, ["<unk>", "<s>", "</s>", "a", "b", "c", "ab"]
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"


@pytest.fixture
def context(tmp_path: Path) -> protocols.ModelContext:
    return protocols.ModelContext(cache=tmp_path / "cache", work=tmp_path / "work", seed=0)


@pytest.fixture(scope="session")
def tensors() -> dict[str, np.ndarray]:
    """A llama of one layer, under llama.cpp's names."""
    draw = np.random.default_rng(0)
    shapes = {
        "token_embd.weight": (len(VOCABULARY), WIDTH),
        "output_norm.weight": (WIDTH,),
        "blk.0.attn_norm.weight": (WIDTH,),
        "blk.0.ffn_norm.weight": (WIDTH,),
        **{f"blk.0.attn_{name}.weight": (WIDTH, WIDTH) for name in ("q", "k", "v", "output")},
        **{f"blk.0.ffn_{name}.weight": (WIDE, WIDTH) for name in ("gate", "up")},
        "blk.0.ffn_down.weight": (WIDTH, WIDE),
    }
    return {name: draw.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}


@pytest.fixture(scope="session")
def gguf_file(tmp_path_factory: pytest.TempPathFactory, tensors: dict[str, np.ndarray]) -> Path:
    file = tmp_path_factory.mktemp("gguf") / "little.gguf"
    _write(file, "llama", tensors)
    return file


@pytest.fixture
def write_gguf() -> Callable[[Path, str, dict[str, np.ndarray]], None]:
    return _write


def _write(file: Path, architecture: str, tensors: dict[str, np.ndarray]) -> None:
    writer = gguf.GGUFWriter(file, architecture)
    writer.add_context_length(64)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(WIDE)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(VOCABULARY))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(VOCABULARY)
    writer.add_token_types([gguf.TokenType.CONTROL] * 3 + [gguf.TokenType.NORMAL] * 4)
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_chat_template(TEMPLATE)
    for name, array in tensors.items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
