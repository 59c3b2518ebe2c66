import pytest
import torch

from areal_core.contexts import OptimizerContext
from areal_plugins.builtin.trainer import AdamWOptions
from areal_plugins.builtin.trainer.optimizer import adamw, parameter_groups


def test_adamw_takes_the_papers_step():
    weight = torch.nn.Parameter(torch.tensor([[2.0]]))
    options = AdamWOptions(weight_decay=0.1, betas=(0.5, 0.8), eps=1e-8)
    optimizer = adamw(options, OptimizerContext(parameter_groups([weight]), 0.25))
    value, first, second = 2.0, 0.0, 0.0
    for t, gradient in enumerate([3.0, -1.0, 0.5], start=1):
        weight.grad = torch.tensor([[gradient]])
        optimizer.step()
        first, second = 0.5 * first + 0.5 * gradient, 0.8 * second + 0.2 * gradient**2
        value -= 0.25 * (first / (1 - 0.5**t) / ((second / (1 - 0.8**t)) ** 0.5 + 1e-8) + 0.1 * value)
    assert weight.item() == pytest.approx(value, rel=1e-6)


def test_vectors_are_not_decayed():
    matrix, vector = torch.nn.Parameter(torch.ones(2, 2)), torch.nn.Parameter(torch.ones(2))
    optimizer = adamw(AdamWOptions(weight_decay=0.1), OptimizerContext(parameter_groups([vector, matrix]), 1.0))
    matrix.grad, vector.grad = torch.zeros(2, 2), torch.zeros(2)
    optimizer.step()
    assert torch.allclose(matrix, torch.full((2, 2), 0.9))
    assert torch.equal(vector, torch.ones(2))


def test_processors_get_the_fused_kernel():
    optimizer = adamw(AdamWOptions(), OptimizerContext(parameter_groups([torch.nn.Parameter(torch.ones(2, 2))]), 1.0))
    assert optimizer.defaults["fused"]
