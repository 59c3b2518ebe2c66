from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from areal_core.contexts import ModelContext
from areal_core.spec.model import Spec
from areal_plugins import CheckContext, InputError, Severity
from areal_plugins.builtin.models import HfOptions, TinyOptions, check_hf, is_local
from areal_plugins.builtin.models.hf import HfSource
from areal_plugins.builtin.models.tiny import TinySource


@pytest.fixture
def context(tmp_path: Path) -> ModelContext:
    return ModelContext(cache=tmp_path / "cache", work=tmp_path / "work", seed=0)


@pytest.fixture
def directory(context: ModelContext) -> Path:
    return TinySource(TinyOptions(), context).materialize()


def hf(context: ModelContext, path: Path | str, **options: object) -> HfSource:
    return HfSource(HfOptions(path=str(path), **options), context)


def test_a_directory_is_used_where_it_is(context: ModelContext, directory: Path) -> None:
    assert hf(context, directory).materialize() == directory


def test_a_path_may_start_at_home(context: ModelContext, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(directory.parent))
    assert hf(context, f"~/{directory.name}").materialize() == directory


def test_a_relative_path_becomes_absolute(
    context: ModelContext, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(directory.parent)
    assert hf(context, directory.name).materialize() == directory


def test_its_tokenizer_is_the_directorys(context: ModelContext, directory: Path) -> None:
    tokenizer = hf(context, directory).tokenizer(directory)
    assert tokenizer.decode(tokenizer.encode("1 + 1")) == "1 + 1"


def test_a_path_that_does_not_exist_is_named(context: ModelContext, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"{tmp_path}/nowhere: there is no such directory"):
        hf(context, tmp_path / "nowhere").materialize()


def test_a_file_is_no_model(context: ModelContext, directory: Path) -> None:
    with pytest.raises(InputError, match="give the directory that holds it"):
        hf(context, directory / "model.safetensors").materialize()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda d: (d / "config.json").unlink(), r"config\.json: there is no such file"),
        (lambda d: (d / "config.json").write_text("{"), r"config\.json: it cannot be read as JSON"),
        (lambda d: (d / "config.json").write_text("[]"), r"config\.json: it holds no JSON object"),
        (lambda d: (d / "config.json").write_text("{}"), r"config\.json: it has no model_type"),
        (lambda d: (d / "model.safetensors").unlink(), r"there is no \*\.safetensors file"),
    ],
)
def test_a_damaged_directory_names_the_file(context: ModelContext, directory: Path, damage, message: str) -> None:
    damage(directory)
    with pytest.raises(InputError, match=message):
        hf(context, directory).materialize()


def test_a_shard_that_the_index_names_must_be_there(context: ModelContext, directory: Path) -> None:
    index = {"weight_map": {"a": "model.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(InputError, match=r"model-00002-of-00002\.safetensors: there is no such file"):
        hf(context, directory).materialize()


@pytest.fixture
def pickled(directory: Path) -> Path:
    tensors = load_file(directory / "model.safetensors")
    torch.save(tensors, directory / "pytorch_model.bin")
    (directory / "model.safetensors").unlink()
    return directory


def test_pickled_weights_are_refused(context: ModelContext, pickled: Path) -> None:
    with pytest.raises(InputError, match=r"pytorch_model\.bin: the weights are pickled.*allow_pickle: true"):
        hf(context, pickled).materialize()


def test_pickled_weights_are_converted_once_when_allowed(context: ModelContext, pickled: Path) -> None:
    source = hf(context, pickled, allow_pickle=True)
    converted = source.materialize()
    assert converted.parent == context.cache
    assert source.materialize() == converted
    expected = torch.load(pickled / "pytorch_model.bin", weights_only=True)
    found = load_file(converted / "model.safetensors")
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    assert source.tokenizer(converted).encode("a") == source.tokenizer(pickled).encode("a")


def test_code_that_comes_with_a_model_is_refused(context: ModelContext, directory: Path) -> None:
    config = json.loads((directory / "config.json").read_text())
    config |= {"model_type": "strange", "auto_map": {"AutoConfig": "configuration_strange.StrangeConfig"}}
    (directory / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=r"config\.json: .*'strange'.*trust_remote_code: true"):
        hf(context, directory).materialize()
    assert hf(context, directory, trust_remote_code=True).materialize() == directory


def test_code_that_transformers_has_itself_is_no_reason_to_refuse(context: ModelContext, directory: Path) -> None:
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | {"auto_map": {"AutoConfig": "x.Y"}}))
    assert hf(context, directory).materialize() == directory


@pytest.mark.parametrize("path", ["/models/qwen", "./qwen", "../qwen", "~/qwen", "a/b/c"])
def test_such_paths_are_local(path: str) -> None:
    assert is_local(path)


@pytest.mark.parametrize("path", ["gpt2", "Qwen/Qwen3-0.6B"])
def test_such_paths_are_hub_ids(path: str) -> None:
    assert not is_local(path)


def findings(path: str) -> list[tuple[str, Severity, str]]:
    found = check_hf(CheckContext(Spec(), HfOptions(path=path), ("model",)))
    return [(finding.code, finding.severity, finding.dotted) for finding in found]


def test_check_reports_a_local_path_that_this_machine_lacks() -> None:
    assert findings("/models/qwen3-0.6b-npu") == [("missing-model", Severity.UNAVAILABLE, "model.path")]


def test_check_reports_a_directory_without_a_config(tmp_path: Path) -> None:
    assert findings(str(tmp_path)) == [("missing-model", Severity.UNAVAILABLE, "model.path")]


def test_check_accepts_hub_ids_and_models(directory: Path) -> None:
    assert findings("Qwen/Qwen3-0.6B") == findings(str(directory)) == []
