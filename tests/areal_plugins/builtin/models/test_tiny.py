from __future__ import annotations

import hashlib
from pathlib import Path

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file

from areal_core.contexts import ModelContext
from areal_core.data import Message
from areal_core.spec.model import Spec
from areal_plugins import CheckContext, InputError
from areal_plugins.builtin.models import PRINTABLE, TinyOptions, check_tiny
from areal_plugins.builtin.models.tiny import TinySource, config, weights

ARCHITECTURES = ["qwen2", "llama"]


def source(work: Path, seed: int = 0, **options: object) -> TinySource:
    return TinySource(TinyOptions(**options), ModelContext(cache=work / "cache", work=work, seed=seed))


def fingerprint(directory: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(directory.iterdir())}


def check(**options: object) -> list[tuple[str, str]]:
    found = check_tiny(CheckContext(Spec(), TinyOptions(**options), ("model",)))
    return [(finding.code, finding.dotted) for finding in found]


def test_equal_seeds_give_equal_bytes(tmp_path: Path) -> None:
    first, second = (source(tmp_path / name, seed=7).materialize() for name in ("a", "b"))
    assert fingerprint(first) == fingerprint(second)


def test_the_random_start_stays_what_it_is() -> None:
    drawn = dict(weights(TinyOptions(), seed=0))["model.embed_tokens.weight"]
    assert drawn[0, :3].tolist() == pytest.approx([-0.0229789, 0.0117921, -0.0019475], abs=1e-6)


def test_another_seed_gives_other_weights_in_another_directory(tmp_path: Path) -> None:
    first, second = (source(tmp_path, seed).materialize() for seed in (0, 1))
    name = "model.layers.0.mlp.up_proj.weight"
    assert not np.array_equal(*(load_file(path / "model.safetensors")[name] for path in (first, second)))


def test_it_is_found_again(tmp_path: Path) -> None:
    directory = source(tmp_path).materialize()
    stamp = (directory / "model.safetensors").stat().st_mtime_ns
    assert source(tmp_path).materialize() == directory
    assert (directory / "model.safetensors").stat().st_mtime_ns == stamp


def test_a_parameter_does_not_depend_on_the_layers_beside_it() -> None:
    shallow, deep = (dict(weights(TinyOptions(layers=layers), seed=3)) for layers in (1, 3))
    assert all(np.array_equal(shallow[name], deep[name]) for name in shallow)


def test_matrices_have_the_asked_spread_and_norms_are_one() -> None:
    drawn = dict(weights(TinyOptions(initializer_range=0.1), seed=0))
    assert drawn["model.layers.0.mlp.up_proj.weight"].std() == pytest.approx(0.1, rel=0.05)
    assert (drawn["model.norm.weight"] == 1).all()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("tied", [True, False])
def test_transformers_loads_every_parameter_and_no_other(tmp_path: Path, architecture: str, tied: bool) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    directory = source(tmp_path, architecture=architecture, tie_embeddings=tied, kv_heads=1).materialize()
    model, report = AutoModelForCausalLM.from_pretrained(directory, output_loading_info=True, dtype="auto")
    assert type(model).__name__.lower() == f"{architecture}forcausallm"
    assert not any(report.values())
    written = load_file(directory / "model.safetensors")
    assert set(written) == {name for name, _ in model.named_parameters()}
    assert model.dtype == torch.float32
    tokens = torch.tensor([[5, 6, 7]])
    assert model(tokens).logits.shape == (1, 3, model.config.vocab_size)


def test_generation_stops_at_the_end_token(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(source(tmp_path).materialize())
    assert (model.generation_config.eos_token_id, model.generation_config.pad_token_id) == (1, 0)


def test_sizes_are_those_of_the_options(tmp_path: Path) -> None:
    options = TinyOptions(heads=4, kv_heads=2, alphabet="abcdefghi")
    assert sum(array.size for _, array in weights(options, 0)) == 75_008
    assert config(options)["vocab_size"] == 11


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_auto_tokenizer_gives_one_token_a_character(tmp_path: Path, architecture: str) -> None:
    from transformers import AutoTokenizer

    directory = source(tmp_path, architecture=architecture, alphabet="abc \n").materialize()
    tokenizer = AutoTokenizer.from_pretrained(directory)
    assert tokenizer.encode("ab c\n") == [2, 3, 5, 4, 6]
    assert (len(tokenizer), tokenizer.pad_token_id, tokenizer.eos_token_id) == (7, 0, 1)


@pytest.fixture(scope="module", params=ARCHITECTURES)
def tokenizer(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest):
    made = source(tmp_path_factory.mktemp("tiny"), architecture=request.param)
    return made.tokenizer(made.materialize())


@given(text=st.text(st.sampled_from(PRINTABLE)))
def test_any_text_survives_encoding_and_decoding(tokenizer, text: str) -> None:
    tokens = tokenizer.encode(text)
    assert len(tokens) == len(text)
    assert tokenizer.decode(tokens) == text


@pytest.mark.parametrize("text", ["<eos>", "<pad>", "a <eos> b", "don 't", " , . !"])
def test_text_that_looks_special_is_text(tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_special_tokens_leave_no_text(tokenizer) -> None:
    assert tokenizer.decode([1, *tokenizer.encode("x"), 0, 1]) == "x"


def test_the_end_token_is_known(tokenizer) -> None:
    assert tokenizer.eos_ids == (1,)


def test_a_character_outside_the_alphabet_is_named(tokenizer) -> None:
    with pytest.raises(InputError, match="'é' is not in the model's alphabet"):
        tokenizer.encode("café")


def test_messages_need_a_chat_template(tokenizer) -> None:
    with pytest.raises(InputError, match=r"tiny-\w+-\w+: the model has no chat template"):
        tokenizer.render([Message("user", "hi")])


def test_messages_are_rendered_by_the_template(tmp_path: Path) -> None:
    template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: "
    made = source(tmp_path, chat_template=template)
    assert made.tokenizer(made.materialize()).render([Message("user", "hi")]) == "user: hi\nassistant: "


def test_a_template_that_refuses_names_the_model(tmp_path: Path) -> None:
    made = source(tmp_path, chat_template="{{ raise_exception('no system turns') }}")
    with pytest.raises(InputError, match="refuses the messages: no system turns"):
        made.tokenizer(made.materialize()).render([Message("system", "hi")])


@pytest.mark.parametrize(
    ("options", "finding"),
    [
        ({"hidden_size": 60, "heads": 8, "kv_heads": 8}, ("bad-shape", "model.heads")),
        ({"hidden_size": 24, "heads": 8, "kv_heads": 8}, ("bad-shape", "model.heads")),
        ({"heads": 4, "kv_heads": 3}, ("bad-shape", "model.kv_heads")),
        ({"alphabet": ""}, ("bad-alphabet", "model.alphabet")),
        ({"alphabet": "abé"}, ("bad-alphabet", "model.alphabet")),
        ({"alphabet": "aba"}, ("bad-alphabet", "model.alphabet")),
    ],
)
def test_options_that_do_not_fit_are_found_and_refused(
    tmp_path: Path, options: dict[str, object], finding: tuple[str, str]
) -> None:
    assert check(**options) == [finding]
    with pytest.raises(InputError, match=finding[1].rpartition(".")[2]):
        source(tmp_path, **options)


def test_the_defaults_fit() -> None:
    assert check() == []


def test_every_option_is_documented() -> None:
    assert all(option.metadata["doc"] for option in attrs.fields(TinyOptions))
