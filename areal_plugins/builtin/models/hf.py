"""Models that exist: a local Hugging Face directory, or a snapshot of a hub's repository."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from areal_core.contexts import ModelContext
from areal_plugins import InputError
from areal_plugins.builtin.models import HfOptions, is_local
from areal_plugins.builtin.models.once import made_once
from areal_plugins.builtin.models.tokenizer import HuggingFaceTokenizer

_INDEX = "model.safetensors.index.json"
_PICKLED = ("pytorch_model*.bin", "*.pt", "*.pth", "consolidated*.pth")


class HfSource:
    """`protocols.ModelSource` of a directory or hub id. A directory is used where it is, never copied."""

    def __init__(self, options: HfOptions, context: ModelContext) -> None:
        self._options, self._context = options, context

    def materialize(self) -> Path:
        """The checked directory; a hub id is downloaded to the hub's own cache first.

        Raises:
            InputError: names the file that is missing or refused, or why the hub did not answer.

        """
        path = self._options.path
        directory = Path(path).expanduser().absolute() if is_local(path) else self._snapshot()
        _check_config(directory, self._options.trust_remote_code)
        return self._with_safetensors(directory)

    def tokenizer(self, directory: Path) -> HuggingFaceTokenizer:
        """The tokenizer in `directory`."""
        return HuggingFaceTokenizer(directory, self._options.trust_remote_code)

    def _snapshot(self) -> Path:
        from areal_plugins.builtin.models.hub import snapshot

        options = self._options
        return snapshot(options.path, options.revision, code=options.trust_remote_code, pickle=options.allow_pickle)

    def _with_safetensors(self, directory: Path) -> Path:
        if any(directory.glob("*.safetensors")):
            _check_shards(directory)
            return directory
        pickled = sorted(file for pattern in _PICKLED for file in directory.glob(pattern))
        if not pickled:
            raise InputError(str(directory), "there is no *.safetensors file")
        if not self._options.allow_pickle:
            way_out = "convert it to safetensors, or set allow_pickle: true if you trust its source"
            raise InputError(str(pickled[0]), "the weights are pickled, which can run code on loading", way_out)
        target = self._context.cache / f"{directory.name}-safetensors-{_fingerprint(pickled)}"
        return made_once(target, lambda partial: _convert(directory, partial))


def _check_config(directory: Path, trust_remote_code: bool) -> None:
    if not directory.is_dir():
        way_out = "a hub id has the form org/name" if not directory.exists() else "give the directory that holds it"
        raise InputError(str(directory), "there is no such directory", way_out)
    config = _read_json(directory / "config.json")
    if "model_type" not in config and "auto_map" not in config:
        raise InputError(str(directory / "config.json"), "it has no model_type")
    if "auto_map" in config and not trust_remote_code and not _known(str(config.get("model_type"))):
        problem = f"transformers does not know model_type {config.get('model_type')!r}; the model brings its own code"
        raise InputError(str(directory / "config.json"), problem, "set trust_remote_code: true if you trust it")


def _known(model_type: str) -> bool:
    from transformers import CONFIG_MAPPING

    return model_type in CONFIG_MAPPING


def _check_shards(directory: Path) -> None:
    """Every file that the index names is there."""
    if not (directory / _INDEX).is_file():
        return
    shards = _read_json(directory / _INDEX).get("weight_map", {})
    missing = sorted({shard for shard in shards.values() if not (directory / shard).is_file()})
    if missing:
        raise InputError(str(directory / missing[0]), f"there is no such file, but {_INDEX} names it")


def _read_json(file: Path) -> dict[str, Any]:
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(str(file), "there is no such file", "give a Hugging Face model directory") from None
    except (OSError, ValueError) as error:
        raise InputError(str(file), f"it cannot be read as JSON: {error}") from error
    if not isinstance(value, dict):
        raise InputError(str(file), "it holds no JSON object")
    return value


def _fingerprint(files: list[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()[:16]


def _convert(source: Path, target: Path) -> None:
    """Write what `source` holds pickled as safetensors; `torch.load` runs with `weights_only`."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(str(source), local_files_only=True, use_safetensors=False)
    model.save_pretrained(str(target))
    for file in _companions(source):
        (target / file.name).write_bytes(file.read_bytes())


def _companions(directory: Path) -> Iterator[Path]:
    """What belongs to the model beside its weights: tokenizer and templates."""
    written = {"config.json", "generation_config.json"}
    for pattern in ("*.json", "*.txt", "*.model", "*.jinja"):
        yield from (file for file in directory.glob(pattern) if file.name not in written and ".index." not in file.name)
