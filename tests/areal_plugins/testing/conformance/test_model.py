"""Sources of models that keep the rules, and for each rule one that breaks it alone."""

from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from areal_plugins import ModelCapabilities, ModelDescriptor
from areal_plugins.testing.conformance import Case, ModelConformance
from areal_plugins.testing.conformance.reference import reference
from areal_plugins.testing.conformance.running import run


class TestTiny(ModelConformance):
    @pytest.fixture(params=[{}, {"tie_embeddings": False, "architecture": "llama"}], ids=["tied", "llama"])
    def component(self, request):
        return Case("model/tiny", request.param)


class TestHf(ModelConformance):
    """From a directory: a hub is out of reach of tests."""

    texts = ("a", "is it so, then?", "  spaces  ")

    @pytest.fixture
    def component(self):
        return Case("model/hf", {"path": str(reference(seed=0).directory)})


class Letters:
    eos_ids = (0,)

    def encode(self, text):
        return [ord(c) for c in text]

    def decode(self, tokens):
        return "".join(chr(t) for t in tokens if t)

    def render(self, messages):
        return "".join(f"{m.role}: {m.content}\n" for m in messages)


class Plain:
    """Ten random numbers."""

    letters = Letters

    def __init__(self, options, context):
        self.directory, self.seed = context.cache / f"plain-{context.seed}", context.seed

    def materialize(self):
        if not self.directory.exists():
            self.directory.mkdir(parents=True)
            self.write()
        return self.directory

    def write(self):
        (self.directory / "config.json").write_text(json.dumps({"model_type": "plain"}))
        numbers = np.random.default_rng(self.seed).normal(size=10).astype(np.float32)
        save_file({"weight": numbers}, self.directory / "model.safetensors")

    def tokenizer(self, directory):
        return self.letters()


class Nameless(Plain):
    def write(self):
        super().write()
        (self.directory / "config.json").write_text("{}")


class Diligent(Plain):
    def materialize(self):
        self.directory.mkdir(parents=True, exist_ok=True)
        self.write()
        return self.directory


class Frozen(Plain):
    def write(self):
        self.seed = 0
        super().write()


class Miscounted(Plain):
    pass


def tokenized(**methods):
    return type("Tokenized", (Plain,), {"letters": type("Odd", (Letters,), methods)})


Beginning = tokenized(
    encode=lambda self, text: [1, *map(ord, text)],
    decode=lambda self, tokens: "".join(chr(t) for t in tokens if t > 1) if 0 in tokens else "".join(map(chr, tokens)),
)
Showing = tokenized(decode=lambda self, tokens: "".join(map(chr, tokens)))
Deaf = tokenized(render=lambda self, messages: "assistant:")

BROKEN = {
    "test_it_makes_a_model_directory": Nameless,
    "test_it_is_made_once": Diligent,
    "test_the_seed_fixes_a_random_start": Frozen,
    "test_its_parameters_are_counted_right": Miscounted,
    "test_texts_come_back": Beginning,
    "test_end_tokens_are_left_out": Showing,
    "test_messages_are_rendered_or_refused": Deaf,
}
NAMES = {cls: name for name, cls in vars().items() if isinstance(cls, type)}
RULES = [name for name in vars(ModelConformance) if name.startswith("test_")]


def failed(cls, only=tuple(RULES)):
    descriptor = ModelDescriptor(
        name=NAMES[cls].lower(),
        summary="an odd one",
        factory=f"{__name__}:{NAMES[cls]}",
        capabilities=ModelCapabilities(random_start=True),
        parameters=lambda options: 11 if cls is Miscounted else 10,
    )
    return {r.test: r.cause for r in run(ModelConformance, descriptor, only=only) if r.outcome == "failed"}


def test_a_plain_source_keeps_every_rule():
    assert failed(Plain) == {}


def test_there_is_a_broken_source_for_every_rule():
    assert set(BROKEN) == set(RULES)


@pytest.mark.parametrize("rule", BROKEN)
def test_a_source_that_breaks_a_rule_fails_that_rule_alone(rule, asked):
    found = failed(BROKEN[rule], asked(rule, {rule}, RULES))
    assert list(found) == [rule], found
