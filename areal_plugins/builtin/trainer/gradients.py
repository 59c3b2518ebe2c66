"""Gradients of a micro-batch, and what is done with their sum."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn


def backward(loss: Tensor, leaves: Iterable[Tensor | None], outputs: Iterable[Tensor | None], scale: float) -> bool:
    """Add the gradient of `scale * loss` to the parameters behind `outputs`; whether there was any.

    Where no output has a share in the loss (a micro-batch whose advantages are all 0) the models'
    backward pass is not run.
    """
    if not loss.requires_grad:
        return False
    (loss * scale if scale != 1.0 else loss).backward()  # type: ignore[no-untyped-call]
    pairs = [(o, leaf.grad) for o, leaf in zip(outputs, leaves, strict=True) if o is not None and leaf is not None]
    live = [(output, grad) for output, grad in pairs if grad is not None and bool(grad.any())]
    if live:
        torch.autograd.backward([output for output, _ in live], [grad for _, grad in live])
    return bool(live)


def gradient_norm(parameters: Sequence[nn.Parameter], scale: float) -> float:
    """The norm of all gradients together, after division by the loss scale; nan or inf where one is."""
    grads = [p.grad for p in parameters if p.grad is not None]
    if not grads:
        return 0.0
    if scale != 1.0:
        torch._foreach_mul_(grads, 1.0 / scale)
    return float(torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads))))


def clip(parameters: Sequence[nn.Parameter], norm: float, most: float | None) -> bool:
    """Scale gradients of norm `norm` down to `most`; whether that was needed."""
    if most is None or not math.isfinite(norm) or norm <= most:
        return False
    torch._foreach_mul_([p.grad for p in parameters if p.grad is not None], most / norm)
    return True


def complete(parameters: Sequence[nn.Parameter]) -> None:
    """Where no backward pass ran at all, gradients of 0: the optimizer's moments decay as in any step."""
    if all(p.grad is None for p in parameters):
        for parameter in parameters:
            parameter.grad = torch.zeros_like(parameter)
