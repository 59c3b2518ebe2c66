"""`protocols.ModelSource` of GGUF files."""

from __future__ import annotations

import hashlib
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from areal_plugin_smollm2 import INSTALL, PACKAGE, GgufOptions, Smollm2Options
from areal_plugin_smollm2.conversion import convert
from areal_plugins import InputError, protocols
from areal_plugins.builtin.models.once import made_once
from areal_plugins.builtin.models.tokenizer import HuggingFaceTokenizer

_MAGIC = b"GGUF"


class GgufSource:
    """A GGUF file, converted into the cache under a name that holds the hash of its content."""

    def __init__(self, options: GgufOptions, context: protocols.ModelContext) -> None:
        self._file, self._dtype, self._cache = Path(options.path).expanduser(), options.dtype, context.cache

    def materialize(self) -> Path:
        """The converted directory; of several processes that ask at once, one converts.

        Raises:
            InputError: the file does not exist, is no GGUF file, or holds what transformers cannot read.

        """
        _check(self._file)
        with self._file.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        target = self._cache / f"{self._file.stem}-{self._dtype}-{digest[:16]}"
        return made_once(target, partial(convert, self._file, self._dtype))

    def tokenizer(self, directory: Path) -> HuggingFaceTokenizer:
        """The tokenizer in `directory`."""
        return HuggingFaceTokenizer(directory)


def smollm2(options: Smollm2Options, context: protocols.ModelContext) -> GgufSource:
    """The source of the file that the package carries; the package itself is never imported."""
    return GgufSource(GgufOptions(path=str(packaged_file()), dtype=options.dtype), context)


def packaged_file() -> Path:
    """The GGUF file of the installed package.

    Raises:
        InputError: the package is not installed, or carries no such file.

    """
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise InputError("model smollm2-135m", "the weights are not installed", INSTALL)
    files = sorted(Path(spec.origin).parent.glob("*.gguf"))
    if not files:
        raise InputError(str(Path(spec.origin).parent), "the package holds no .gguf file", INSTALL)
    return files[0]


def _check(file: Path) -> None:
    if not file.is_file():
        raise InputError(str(file), "there is no such file")
    with file.open("rb") as stream:
        if stream.read(len(_MAGIC)) != _MAGIC:
            raise InputError(str(file), "it is not a GGUF file")
