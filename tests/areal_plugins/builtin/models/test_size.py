"""Parameters are counted without loading the model."""

from __future__ import annotations

import numpy as np
import pytest
from safetensors.numpy import save_file

from areal_plugins.builtin.models import HfOptions, TinyOptions
from areal_plugins.builtin.models.size import hf_parameters, tiny_parameters
from areal_plugins.builtin.models.tiny import weights


@pytest.mark.parametrize(
    "options", [TinyOptions(), TinyOptions(architecture="llama", tie_embeddings=False, kv_heads=1, alphabet="ab")]
)
def test_the_tiny_model_is_counted_from_its_options(options):
    assert tiny_parameters(options) == sum(array.size for _, array in weights(options, 0))


def test_a_directory_is_counted_from_the_headers_of_its_files(tmp_path):
    save_file({"a": np.zeros((3, 4), dtype=np.float32)}, tmp_path / "model-1.safetensors", {"format": "pt"})
    save_file({"b": np.zeros(5, dtype=np.float16)}, tmp_path / "model-2.safetensors")
    assert hf_parameters(HfOptions(path=str(tmp_path))) == 17


def test_a_hub_id_is_not_counted():
    assert hf_parameters(HfOptions(path="org/name")) is None
