import pytest
import torch

from areal_plugins import TransportError
from areal_plugins.builtin.engine.weights import Parameters, read_directory


def replace(model, tensors) -> None:
    update = Parameters(model).update()
    for name, tensor in tensors:
        update.copy(name, tensor)
    update.finish()


def test_all_parameters_are_replaced_in_place(tools):
    model, other = tools.build(seed=0), tools.build(seed=1)
    places = {name: p.data_ptr() for name, p in model.named_parameters()}
    replace(model, other.named_parameters())
    for (name, found), (_, wanted) in zip(model.named_parameters(), other.named_parameters(), strict=True):
        assert found.data_ptr() == places[name]
        assert torch.equal(found, wanted)


def test_tensors_of_another_format_are_converted(tools):
    model, other = tools.build(seed=0), tools.build(seed=1).to(torch.bfloat16)
    replace(model, other.named_parameters())
    assert torch.equal(model.lm_head.weight, other.lm_head.weight.float())


def test_a_missing_tensor_is_named(tools):
    model = tools.build()
    with pytest.raises(TransportError, match=r"did not arrive: model\.norm\.weight, lm_head\.weight"):
        replace(model, list(model.named_parameters())[:-2])


def test_many_missing_tensors_are_counted(tools):
    with pytest.raises(TransportError, match=r"model\.embed_tokens\.weight, .* and 24 more"):
        replace(tools.build(), [])


def test_an_extra_tensor_is_named(tools):
    with pytest.raises(TransportError, match=r"Qwen2ForCausalLM has no parameter model\.extra"):
        replace(tools.build(), [("model.extra", torch.zeros(1))])


def test_a_tensor_of_another_shape_is_named_with_both(tools):
    with pytest.raises(TransportError, match=r"model\.norm\.weight arrived with shape \(3,\) instead of \(32,\)"):
        replace(tools.build(), [("model.norm.weight", torch.zeros(3))])


@pytest.mark.parametrize("names", [["lm_head.weight"], ["model.embed_tokens.weight"]])
def test_either_name_of_tied_tensors_will_do(names, tools):
    model, other = tools.build(tie_word_embeddings=True), tools.build(seed=1, tie_word_embeddings=True)
    weights = dict(other.named_parameters())
    tied = weights.pop("model.embed_tokens.weight")
    replace(model, [*weights.items(), *((name, tied) for name in names)])
    assert torch.equal(model.lm_head.weight, tied)


def test_tied_tensors_may_both_come_when_they_are_equal(tools):
    model = tools.build(tie_word_embeddings=True)
    replace(model, [*model.named_parameters(), ("lm_head.weight", model.lm_head.weight.clone())])


def test_tied_tensors_that_differ_are_refused(tools):
    model = tools.build(tie_word_embeddings=True)
    with pytest.raises(TransportError, match=r"lm_head\.weight is tied to another"):
        replace(model, [*model.named_parameters(), ("lm_head.weight", model.lm_head.weight + 1)])


@pytest.mark.parametrize("tied", [True, False])
def test_a_directory_gives_its_parameters(tied, tools, tmp_path):
    model, other = tools.build(tie_word_embeddings=tied), tools.build(seed=1, tie_word_embeddings=tied)
    other.save_pretrained(tmp_path)
    replace(model, read_directory(model, tmp_path))
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"num_hidden_layers": 3}, "lacks: model.layers.2"),
        ({"num_hidden_layers": 1}, "holds what the model has not: model.layers.1"),
        ({"hidden_size": 16}, "has another shape for: "),
    ],
)
def test_a_directory_of_another_model_is_refused(change, problem, tools, tmp_path):
    tools.build().save_pretrained(tmp_path)
    with pytest.raises(TransportError, match=problem):
        read_directory(tools.build(**change), tmp_path)


def test_a_directory_that_is_not_there_is_named(tools, tmp_path):
    with pytest.raises(TransportError, match="nowhere"):
        read_directory(tools.build(), tmp_path / "nowhere")
