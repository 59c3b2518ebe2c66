from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from areal_plugin_smollm2 import GgufOptions
from areal_plugin_smollm2.source import GgufSource
from safetensors.torch import load_file

from areal_plugins import InputError, data, protocols

Tensors = dict[str, np.ndarray]
Writer = Callable[[Path, str, Tensors], None]


def source(file: Path, context: protocols.ModelContext, **options: str) -> GgufSource:
    return GgufSource(GgufOptions(path=str(file), **options), context)


def test_converted_values_are_those_of_the_file(
    gguf_file: Path, tensors: Tensors, context: protocols.ModelContext
) -> None:
    found = load_file(source(gguf_file, context).materialize() / "model.safetensors")
    assert np.array_equal(found["model.embed_tokens.weight"], tensors["token_embd.weight"])
    assert np.array_equal(found["model.layers.0.mlp.down_proj.weight"], tensors["blk.0.ffn_down.weight"])


def test_transformers_loads_the_directory(gguf_file: Path, context: protocols.ModelContext) -> None:
    from transformers import AutoModelForCausalLM

    directory = source(gguf_file, context).materialize()
    model, report = AutoModelForCausalLM.from_pretrained(directory, output_loading_info=True)
    assert not any(report.values())
    assert model(torch.tensor([[3, 4]])).logits.shape == (1, 2, 7)


def test_dtype_is_that_of_the_options(gguf_file: Path, context: protocols.ModelContext) -> None:
    found = load_file(source(gguf_file, context, dtype="bfloat16").materialize() / "model.safetensors")
    assert {tensor.dtype for tensor in found.values()} == {torch.bfloat16}


def test_tokenizer_and_template_come_along(gguf_file: Path, context: protocols.ModelContext) -> None:
    made = source(gguf_file, context)
    tokenizer = made.tokenizer(made.materialize())
    assert tokenizer.encode("abc") == [6, 5]
    assert tokenizer.decode([6, 5, 2]) == "abc"
    assert tokenizer.eos_ids == (2,)
    assert tokenizer.render([data.Message("user", "ab")]) == "ab"


def test_the_name_follows_the_content_and_not_the_path(
    gguf_file: Path, context: protocols.ModelContext, tmp_path: Path
) -> None:
    moved = tmp_path / "elsewhere" / gguf_file.name
    moved.parent.mkdir()
    shutil.copy(gguf_file, moved)
    assert source(moved, context).materialize() == source(gguf_file, context).materialize()


def test_other_content_gets_a_directory_of_its_own(
    gguf_file: Path, write_gguf: Writer, tensors: Tensors, context: protocols.ModelContext, tmp_path: Path
) -> None:
    other = tmp_path / gguf_file.name
    write_gguf(other, "llama", {name: array + 1 for name, array in tensors.items()})
    assert source(other, context).materialize() != source(gguf_file, context).materialize()


CONVERT = """
import sys
from pathlib import Path
from areal_plugin_smollm2 import GgufOptions
from areal_plugin_smollm2.source import GgufSource
from areal_plugins.protocols import ModelContext
file, cache, work = sys.argv[1:]
GgufSource(GgufOptions(path=file), ModelContext(cache=Path(cache), work=Path(work), seed=0)).materialize()
"""


def test_two_processes_convert_once(gguf_file: Path, context: protocols.ModelContext) -> None:
    command = [sys.executable, "-P", "-c", CONVERT, str(gguf_file), str(context.cache), str(context.work)]
    processes = [subprocess.Popen(command) for _ in range(2)]
    assert [process.wait() for process in processes] == [0, 0]
    assert len([path for path in context.cache.iterdir() if path.is_dir()]) == 1


def test_a_file_that_is_not_there_is_named(context: protocols.ModelContext, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.gguf: there is no such file"):
        source(tmp_path / "nowhere.gguf", context).materialize()


def test_a_file_that_is_no_gguf_is_named(context: protocols.ModelContext, tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"something else")
    with pytest.raises(InputError, match=r"model\.gguf: it is not a GGUF file"):
        source(file, context).materialize()


def test_an_architecture_that_transformers_lacks_is_named_and_nothing_is_left(
    write_gguf: Writer, tensors: Tensors, context: protocols.ModelContext, tmp_path: Path
) -> None:
    file = tmp_path / "odd.gguf"
    write_gguf(file, "neverheardof", tensors)
    with pytest.raises(InputError, match=r"odd\.gguf: transformers cannot read it: .*neverheardof"):
        source(file, context).materialize()
    assert not [path for path in context.cache.iterdir() if path.is_dir()]
