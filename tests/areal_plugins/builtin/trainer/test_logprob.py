import pytest
import torch

from areal_plugins.builtin.trainer import logprob
from areal_plugins.builtin.trainer.logprob import Head, log_probabilities


def problem(dtype=torch.float64, bias=True, positions=10, vocabulary=13):
    generator = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.randn(*shape, dtype=dtype, generator=generator, requires_grad=True)

    hidden, weight = draw(positions, 5), draw(vocabulary, 5)
    targets = torch.randint(0, vocabulary, (positions,), generator=generator)
    return hidden, weight, draw(vocabulary) if bias else None, targets


def reference(hidden, weight, bias, targets, scale, cap):
    logits = hidden @ weight.T + (0 if bias is None else bias)
    logits = logits if cap is None else cap * torch.tanh(logits / cap)
    logp = (logits * scale).log_softmax(-1)
    return logp.gather(1, targets[:, None]).squeeze(1), -(logp.exp() * logp).sum(-1)


@pytest.fixture(autouse=True)
def _in_chunks(monkeypatch):
    """As with many logits, in chunks of four positions."""
    monkeypatch.setattr(logprob, "FEW_LOGITS", 0)
    monkeypatch.setattr(logprob, "CHUNK_BYTES", 13 * 4 * 8)


@pytest.mark.parametrize("few", [0, 1 << 20], ids=["chunked", "direct"])
@pytest.mark.parametrize("keep", [0, 500, 1 << 30], ids=["recomputed", "partly-kept", "kept"])
@pytest.mark.parametrize("cap", [None, 3.0])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("dtype", "limit"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_values_and_gradients_are_those_of_all_logits(monkeypatch, few, keep, cap, bias, dtype, limit):
    monkeypatch.setattr(logprob, "FEW_LOGITS", few)
    hidden, weight, b, targets = problem(dtype, bias)
    inputs = [hidden, weight, *([b] if bias else [])]
    g, h = torch.linspace(-1, 1, 10, dtype=dtype), torch.linspace(2, -1, 10, dtype=dtype)
    ours = log_probabilities(hidden, targets, Head(weight, b, 1 / 0.7, cap, dtype, keep), entropy_gradient=True)
    theirs = reference(hidden, weight, b, targets, 1 / 0.7, cap)
    grads = [torch.autograd.grad(torch.dot(p, g) + torch.dot(e, h), inputs) for p, e in (ours, theirs)]
    for mine, other in zip((*ours, *grads[0]), (*theirs, *grads[1]), strict=True):
        torch.testing.assert_close(mine, other, rtol=limit, atol=limit)


def test_gradients_pass_a_numerical_check():
    hidden, weight, bias, targets = problem()

    def both(hidden, weight, bias):
        return log_probabilities(hidden, targets, Head(weight, bias, 0.5, None, torch.float64, 1 << 20), True)

    assert torch.autograd.gradcheck(both, (hidden, weight, bias))


def test_entropy_carries_no_gradient_unless_asked_for():
    hidden, weight, _, targets = problem(bias=False)
    logp, entropy = log_probabilities(hidden, targets, Head(weight, None, 1.0, None, torch.float64, 0))
    assert logp.requires_grad
    assert not entropy.requires_grad


def test_an_unlikely_token_does_not_underflow():
    hidden, weight = torch.tensor([[200.0]], requires_grad=True), torch.tensor([[1.0], [-1.0]])
    logp, _ = log_probabilities(hidden, torch.tensor([1]), Head(weight, None, 1.0, None, torch.float32, 0))
    assert logp.item() == pytest.approx(-400)


def test_positions_without_a_share_in_the_loss_cost_no_product(monkeypatch):
    hidden, weight, _, targets = problem(bias=False)
    calls = []
    plain = logprob._logits
    monkeypatch.setattr(logprob, "_logits", lambda *args: calls.append(1) or plain(*args))
    logp, _ = log_probabilities(hidden, targets, Head(weight, None, 1.0, None, torch.float64, 0))
    forward = len(calls)
    logp[8:].sum().backward()
    assert forward == 3
    assert len(calls) - forward == 1


def test_frozen_weights_get_no_gradient():
    hidden, weight, _, targets = problem(bias=False)
    weight = weight.detach()
    log_probabilities(hidden, targets, Head(weight, None, 1.0, None, torch.float64, 0))[0].sum().backward()
    assert weight.grad is None
    assert hidden.grad is not None


def test_products_may_be_in_a_shorter_format():
    hidden, weight, _, targets = problem(torch.float32, bias=False)
    exact, _ = log_probabilities(hidden, targets, Head(weight, None, 1.0, None, torch.float32, 0))
    short, _ = log_probabilities(hidden, targets, Head(weight, None, 1.0, None, torch.bfloat16, 0))
    short.sum().backward()
    assert short.dtype == torch.float32
    assert hidden.grad.dtype == torch.float32
    torch.testing.assert_close(short, exact, rtol=0.05, atol=0.05)


def test_no_positions_at_all_is_no_error():
    hidden, weight, _, _ = problem(bias=False)
    logp, entropy = log_probabilities(
        hidden[:0], torch.zeros(0, dtype=torch.long), Head(weight, None, 1.0, None, torch.float64, 0)
    )
    assert len(logp) == len(entropy) == 0
