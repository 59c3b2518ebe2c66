import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from areal_plugins.builtin.engine.sampling import Draws, sample, stream_keys, uniforms


def draws(count: int, temperature=1.0, top_k=0, top_p=1.0, uniform=None) -> Draws:
    numbers = uniforms(stream_keys(5, count), np.zeros(count)) if uniform is None else uniform
    return Draws(np.full(count, temperature), np.full(count, top_p), np.full(count, top_k), numbers)


def frequencies(logits: np.ndarray, **how) -> np.ndarray:
    count = 40_000
    tokens, _ = sample(torch.from_numpy(logits).float().expand(count, -1).clone(), draws(count, **how))
    return np.bincount(tokens.numpy(), minlength=len(logits)) / count


def chi_square(found: np.ndarray, expected: np.ndarray, count: int = 40_000) -> float:
    """Per degree of freedom; about 1 when the frequencies are those expected."""
    possible = expected > 0
    assert not found[~possible].any()
    return float((count * (found - expected)[possible] ** 2 / expected[possible]).sum() / max(1, possible.sum() - 1))


@pytest.mark.parametrize(
    "how",
    [{}, {"temperature": 0.5}, {"top_k": 4}, {"top_p": 0.6}, {"temperature": 1.7, "top_k": 9, "top_p": 0.8}],
    ids=str,
)
def test_tokens_are_drawn_as_often_as_their_probability_says(how, tools):
    logits = np.random.default_rng(1).normal(size=20) * 1.5
    assert chi_square(frequencies(logits, **how), tools.distribution(logits, **how)) < 2


def test_a_large_vocabulary_is_drawn_as_its_probabilities_say(tools):
    logits = np.random.default_rng(2).normal(size=700) * 0.5
    assert chi_square(frequencies(logits), tools.distribution(logits)) < 1.3


@settings(deadline=None, max_examples=150)
@given(
    st.sampled_from([5, 300, 515, 1500]),
    st.sampled_from([0.3, 1.0, 2.0]),
    st.sampled_from([0, 1, 3, 40, 1100]),
    st.sampled_from([1e-6, 0.4, 0.95, 1.0]),
    st.integers(0, 1000),
)
def test_logprobs_are_those_of_the_truncated_distribution(tools, vocabulary, temperature, top_k, top_p, seed):
    logits = np.random.default_rng(seed).normal(size=(3, vocabulary)) * 4
    tokens, logprobs = sample(torch.from_numpy(logits).float(), draws(3, temperature, top_k, top_p))
    for row, token, logprob in zip(logits.astype(np.float32), tokens, logprobs, strict=True):
        wanted = tools.distribution(row.astype(np.float64), temperature, top_k, top_p)[token]
        assert logprob == pytest.approx(np.log(wanted), abs=1e-4)


@pytest.mark.parametrize("vocabulary", [7, 256, 257, 1000])
def test_the_least_and_largest_numbers_draw_tokens_that_are_possible(vocabulary):
    logits = torch.full((2, vocabulary), -torch.inf)
    logits[:, [2, vocabulary - 3]] = 0
    tokens, logprobs = sample(logits, draws(2, uniform=np.array([0.0, 1 - 2.0**-50])))
    assert tokens.tolist() == [2, vocabulary - 3]
    assert logprobs.tolist() == pytest.approx([np.log(0.5)] * 2)


@given(st.integers(0, 2**50 - 1))
def test_a_token_of_no_probability_is_never_drawn(bits):
    logits = torch.tensor([[-torch.inf, 1.0, -torch.inf, -torch.inf, 0.3, -torch.inf] * 100])
    tokens, _ = sample(logits, draws(1, uniform=np.array([bits * 2.0**-50])))
    assert logits[0, tokens[0]] > -torch.inf


def test_greedy_takes_the_best_and_tells_its_probability_at_temperature_1():
    logits = torch.tensor([[0.0, 2.0, 1.0]])
    tokens, logprobs = sample(logits, draws(1, temperature=0.0, top_k=1, top_p=0.1))
    assert tokens.tolist() == [1]
    assert logprobs.tolist() == pytest.approx([float(torch.log_softmax(logits, -1)[0, 1])])


def test_sequences_of_one_step_may_sample_in_different_ways(tools):
    logits = np.random.default_rng(3).normal(size=(6, 50)) * 2
    how = [(0.0, 0, 1.0), (1.0, 0, 1.0), (0.7, 3, 1.0), (1.0, 0, 0.5), (2.0, 0, 1.0), (0.0, 5, 0.5)]
    temperature, top_k, top_p = (np.array(column) for column in zip(*how, strict=True))
    mixed = Draws(temperature, top_p, top_k, np.linspace(0.1, 0.9, 6))
    tokens, logprobs = sample(torch.from_numpy(logits).float(), mixed)
    for i, (token, logprob) in enumerate(zip(tokens, logprobs, strict=True)):
        alone = sample(torch.from_numpy(logits[i : i + 1]).float(), mixed.of(np.array([i])))
        assert (token, logprob) == (alone[0][0], alone[1][0])
        assert logprob == pytest.approx(np.log(tools.distribution(logits[i], *how[i])[token]), abs=1e-5)


def test_logits_that_are_no_numbers_have_no_logprob():
    _, logprobs = sample(torch.full((1, 600), torch.nan), draws(1))
    assert logprobs.isnan().all()


def test_half_precision_logits_are_drawn_in_float32():
    _, logprobs = sample(torch.zeros(1, 3, dtype=torch.bfloat16), draws(1))
    assert logprobs.dtype == torch.float32
    assert logprobs.tolist() == pytest.approx([np.log(1 / 3)])


def test_a_streams_number_depends_on_seed_stream_and_place_alone():
    keys = stream_keys(9, 4)
    assert uniforms(keys, np.array([3, 3, 3, 3]))[2] == uniforms(stream_keys(9, 3)[2:], np.array([3]))[0]


def test_streams_are_uniform_and_unrelated():
    numbers = uniforms(stream_keys(0, 200)[:, None], np.arange(200)[None])
    assert numbers.min() >= 0
    assert numbers.max() < 1
    assert np.histogram(numbers, 10, (0, 1))[0] == pytest.approx(np.full(10, 4000), abs=250)
    for a, b in ((numbers[1:], numbers[:-1]), (numbers[:, 1:], numbers[:, :-1]), (numbers, numbers.T)):
        assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 0.02


def test_seeds_of_any_size_and_sign_are_taken():
    assert len({int(stream_keys(seed, 1)[0]) for seed in (0, 1, -1, 2**63, 2**70 + 5)}) == 5
