from __future__ import annotations

import json
from pathlib import Path

import pytest

from areal_core.contexts import ModelContext
from areal_plugins import InputError
from areal_plugins.builtin.models import TinyOptions
from areal_plugins.builtin.models.tiny import TinySource
from areal_plugins.builtin.models.tokenizer import HuggingFaceTokenizer


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return TinySource(TinyOptions(), ModelContext(cache=tmp_path, work=tmp_path, seed=0)).materialize()


@pytest.mark.parametrize(("declared", "ids"), [([9, 1, 4], (1, 9, 4)), (7, (1, 7)), (1, (1,)), (None, (1,))])
def test_end_tokens_of_the_generation_config_are_added(directory: Path, declared: object, ids: tuple[int, ...]) -> None:
    (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": declared}))
    assert HuggingFaceTokenizer(directory).eos_ids == ids


def test_end_tokens_without_a_generation_config_are_the_tokenizers(directory: Path) -> None:
    (directory / "generation_config.json").unlink()
    assert HuggingFaceTokenizer(directory).eos_ids == (1,)


def test_tokens_may_be_numpy_integers(directory: Path) -> None:
    import numpy as np

    tokenizer = HuggingFaceTokenizer(directory)
    assert tokenizer.decode(np.array(tokenizer.encode("abc"), dtype=np.int32)) == "abc"


def test_a_directory_without_a_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"{tmp_path}: there is neither a tokenizer.json"):
        HuggingFaceTokenizer(tmp_path)


def test_a_damaged_tokenizer_is_named(directory: Path) -> None:
    (directory / "tokenizer_config.json").write_text("{")
    with pytest.raises(InputError, match=rf"{directory}: the tokenizer cannot be loaded"):
        HuggingFaceTokenizer(directory)
