"""What a source of models must keep."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from areal_core.contexts import ModelContext
from areal_core.data import Message
from areal_core.descriptors import ModelDescriptor
from areal_core.protocols import ModelSource, Tokenizer
from areal_plugins.testing.conformance.base import Conformance, Subject

TEXTS = ("a", "6 times 7 is 42.", "Two\nlines", "  spaces  ")


class ModelConformance(Conformance):
    """Rules for sources of models: what lies in the directory, and what its tokenizer does.

    `texts` are ones that the tokenizer must give back as they are.
    """

    kind: ClassVar[str] = "model"
    texts: ClassVar[tuple[str, ...]] = TEXTS

    @pytest.fixture
    def make(self, subject: Subject, tmp_path: Path) -> Callable[..., ModelSource]:
        """Builds the source, with a cache and a seed of its own where it is told so."""

        def source(seed: int = 0, cache: str = "cache") -> ModelSource:
            work = tmp_path / f"work-{cache}-{seed}"
            made: ModelSource = subject.build(ModelContext(tmp_path / cache, work, seed))
            return made

        return source

    @pytest.fixture
    def tokenizer(self, subject: Subject, make: Callable[..., ModelSource]) -> Tokenizer:
        """The model's tokenizer; policies over steps have none."""
        source = make()
        found = source.tokenizer(source.materialize())
        if found is None and subject.descriptor.capabilities.unit == "step":
            pytest.skip("its unit is a step: there is nothing to tokenize")
        assert found is not None, "a model of tokens has no tokenizer"
        return found

    # --- the directory -----------------------------------------------------------------------------

    def test_it_makes_a_model_directory(self, make: Callable[..., ModelSource]) -> None:
        """The directory has a `config.json` that names the kind of model, and safetensors."""
        directory = make().materialize()
        config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
        assert config.get("model_type"), "its config.json has no model_type"
        assert _tensors(directory), "it has no tensors in *.safetensors"

    def test_it_is_made_once(self, make: Callable[..., ModelSource]) -> None:
        """Asked again, by another process of the run too, the same directory is found as it is."""
        source = make()
        directory = source.materialize()
        before = _stamps(directory)
        for again in (source, make()):
            assert again.materialize() == directory, "it is another directory when it is asked for again"
        assert _stamps(directory) == before, "its files are written again"

    def test_the_seed_fixes_a_random_start(self, subject: Subject, make: Callable[..., ModelSource]) -> None:
        """Where the start is declared to be random, equal seeds give equal weights, and others others."""
        if not subject.descriptor.capabilities.random_start:
            pytest.skip("it declares no random start")
        mine, same, other = (
            _digest(make(seed, cache).materialize()) for seed, cache in ((1, "one"), (1, "two"), (2, "three"))
        )
        assert mine == same, "the same seed gives other weights"
        assert mine != other, "another seed gives the same weights"

    def test_its_parameters_are_counted_right(self, subject: Subject, make: Callable[..., ModelSource]) -> None:
        """What the descriptor says of the number of parameters, if it says anything, is what lies there."""
        assert isinstance(subject.descriptor, ModelDescriptor)
        count = subject.descriptor.parameters
        said = None if count is None else count(subject.options)
        there = sum(_tensors(make().materialize()).values())
        assert said in (None, there), f"it says that there are {said} parameters, and there are {there}"

    # --- the tokenizer -----------------------------------------------------------------------------

    def test_texts_come_back(self, tokenizer: Tokenizer) -> None:
        """Decoding what was encoded gives the text back, which shows that no special token was added."""
        for text in self.texts:
            tokens = tokenizer.encode(text)
            assert all(type(token) is int for token in tokens), f"{text!r} is encoded as {tokens!r}"
            assert not set(tokens) & set(tokenizer.eos_ids), f"{text!r} is encoded with an end token"
            assert tokenizer.decode(tokens) == text, f"{text!r} comes back as {tokenizer.decode(tokens)!r}"

    def test_end_tokens_are_left_out(self, tokenizer: Tokenizer) -> None:
        """There is an end token at least, and it is no part of a decoded text."""
        assert tokenizer.eos_ids, "it has no end token"
        shown = tokenizer.decode([*tokenizer.encode("a"), *tokenizer.eos_ids])
        assert shown == "a", f"with its end tokens 'a' is decoded as {shown!r}"

    def test_messages_are_rendered_or_refused(self, tokenizer: Tokenizer) -> None:
        """Messages become a prompt that holds what they say, or an error where there is no chat template."""
        try:
            prompt = tokenizer.render([Message("user", "6 times 7?")])
        except Exception as error:  # the text of any refusal is looked at
            prompt = f"6 times 7? {error}" if str(error) else ""
        assert "6 times 7?" in prompt, f"what the user says is not in {prompt!r}, nor is it refused with a reason"


def _tensors(directory: Path) -> dict[str, int]:
    """Name and number of elements of each tensor, read from the headers (huggingface.co/docs/safetensors)."""
    found: dict[str, int] = {}
    for path in sorted(directory.glob("*.safetensors")):
        with path.open("rb") as file:
            header: dict[str, Any] = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        header.pop("__metadata__", None)
        found.update({name: math.prod(tensor["shape"]) for name, tensor in header.items()})
    return found


def _digest(directory: Path) -> str:
    """Of all weights."""
    digest = hashlib.sha256()
    for path in sorted(directory.glob("*.safetensors")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _stamps(directory: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in directory.iterdir()}
