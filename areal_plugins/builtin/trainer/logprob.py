"""Log-probabilities and entropy of chosen tokens, never holding all logits at once.

The head is applied to a chunk of positions at a time. While `keep` bytes last, a chunk's
probabilities are kept for the backward pass; beyond that they are computed again there. Where all
logits are few, they are simply computed. Shapes: N positions, C hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from attrs import frozen
from torch import Tensor

CHUNK_BYTES = 24 << 20
"""Logits of one chunk: large enough for the matrix product, small enough for the allocator to reuse."""

FEW_LOGITS = 1 << 16
"""Logits up to which a plain log-softmax is faster."""


@frozen(eq=False)
class Head:
    """The output layer: logits are `scale * cap(weight @ hidden + bias)`, `weight` [V, C], `bias` [V].

    `cap(x)` is `cap * tanh(x / cap)`, or x where it is None; `scale` is the model's own factor over
    the temperature. Matrix products are in `compute`, all else in float32 (float64 stays float64).
    """

    weight: Tensor
    bias: Tensor | None
    scale: float
    cap: float | None
    compute: torch.dtype
    keep: int


def log_probabilities(
    hidden: Tensor, targets: Tensor, head: Head, entropy_gradient: bool = False
) -> tuple[Tensor, Tensor]:
    """[N] log-probabilities of `targets` [N] at `hidden` [N, C], and [N] entropies in nats.

    Entropies carry a gradient only when it is asked for.
    """
    if len(hidden) * len(head.weight) <= FEW_LOGITS:
        return _directly(hidden, targets, head, entropy_gradient)
    pair: tuple[Tensor, Tensor] = _HeadLogProb.apply(  # type: ignore[no-untyped-call]
        hidden, head.weight, head.bias, targets, head, entropy_gradient
    )
    return pair


def _directly(hidden: Tensor, targets: Tensor, head: Head, entropy_gradient: bool) -> tuple[Tensor, Tensor]:
    logp = _logits(hidden, head, torch.promote_types(hidden.dtype, torch.float32)).log_softmax(dim=-1)
    with torch.set_grad_enabled(torch.is_grad_enabled() and entropy_gradient):
        entropy = (logp.exp() * logp).sum(dim=-1).neg()
    return logp.gather(1, targets[:, None]).squeeze(1), entropy


class _HeadLogProb(torch.autograd.Function):
    """With z the logits and p their softmax: log p_y = z_y - lse(z) and H = lse(z) - sum p z.

    For their gradients g and h that of z is `g (1_y - p) - h p (log p + H)`.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        head: Head,
        entropy_gradient: bool,
    ) -> tuple[Tensor, Tensor]:
        wide = torch.promote_types(hidden.dtype, torch.float32)
        logp, entropy = (torch.empty(len(hidden), dtype=wide, device=hidden.device) for _ in range(2))
        left = head.keep if head.cap is None and any(ctx.needs_input_grad) else 0
        kept: list[Tensor | None] = []
        for rows in _chunks(len(hidden), len(weight), wide):
            logits = _logits(hidden[rows], head, wide)
            p = logits.softmax(dim=-1)
            # The largest logit is worth log p of the largest probability more than lse; it never underflows.
            lse = logits.amax(dim=-1).sub_(p.amax(dim=-1).log_())
            torch.sub(logits.gather(1, targets[rows, None]).squeeze(1), lse, out=logp[rows])
            torch.sub(lse, torch.linalg.vecdot(p, logits), out=entropy[rows])
            fits = p.numel() * p.element_size() <= left
            left -= p.numel() * p.element_size() if fits else 0
            kept.append(p if fits else None)
        ctx.save_for_backward(hidden, targets, entropy)
        ctx.head, ctx.kept = head, kept
        ctx.set_materialize_grads(False)
        if not entropy_gradient:
            ctx.mark_non_differentiable(entropy)
        return logp, entropy

    @staticmethod
    def backward(ctx: Any, g: Tensor | None, h: Tensor | None) -> tuple[Tensor | None, ...]:
        hidden, targets, entropy = ctx.saved_tensors
        head: Head = ctx.head
        to_hidden, to_weight, to_bias = ctx.needs_input_grad[:3]
        grad = _Gradients(hidden, head, to_hidden, to_weight, to_bias)
        g = torch.zeros_like(entropy) if g is None else g
        kept, ctx.kept = ctx.kept, [None] * len(ctx.kept)  # they are written over
        for rows, p in zip(_chunks(len(hidden), len(head.weight), entropy.dtype), kept, strict=True):
            if not _any(g[rows]) and (h is None or not _any(h[rows])):
                continue  # no trained unit of the chunk has a share in the loss
            slope: Tensor | float = 1.0
            if p is None:
                logits = _logits(hidden[rows], head, entropy.dtype)
                slope = 1.0 if head.cap is None else 1.0 - (logits / (head.scale * head.cap)).square_()
                p = torch.softmax(logits, dim=-1, out=logits)
            grad.add(rows, _to_logits(p, targets[rows], entropy[rows], g[rows], None if h is None else h[rows]), slope)
        return grad.hidden, grad.weight, grad.bias, None, None, None


class _Gradients:
    """Sums of the chunks' gradients, each only where it is asked for."""

    def __init__(self, hidden: Tensor, head: Head, to_hidden: bool, to_weight: bool, to_bias: bool) -> None:
        self._head, self._input = head, hidden
        self.hidden = torch.zeros_like(hidden) if to_hidden else None
        self.weight = torch.zeros_like(head.weight) if to_weight else None
        self.bias = torch.zeros_like(head.bias) if to_bias and head.bias is not None else None

    def add(self, rows: slice, to_logits: Tensor, slope: Tensor | float) -> None:
        """`to_logits` [n, V] is the gradient of scaled, capped logits; `slope` that of the cap."""
        head = self._head
        if isinstance(slope, Tensor):
            to_logits.mul_(slope)
        d = to_logits.to(head.compute)
        if self.hidden is not None:
            torch.mul(d @ head.weight.to(head.compute), head.scale, out=self.hidden[rows])
        if self.weight is not None:
            inputs = self._input[rows].to(head.compute)
            self.weight.addmm_(d.t().to(self.weight.dtype), inputs.to(self.weight.dtype), alpha=head.scale)
        if self.bias is not None:
            self.bias.add_(to_logits.sum(dim=0), alpha=head.scale)


def _logits(hidden: Tensor, head: Head, wide: torch.dtype) -> Tensor:
    """[n, V], a tensor of its own; it carries gradients where they are recorded."""
    weight = head.weight.to(head.compute)
    logits = (hidden.to(head.compute) @ weight.t()).to(wide)
    if head.bias is not None:
        logits = logits.add_(head.bias)
    if head.cap is not None:
        logits = logits.div_(head.cap).tanh_().mul(head.cap)
    return logits if head.scale == 1.0 else logits.mul_(head.scale)


def _to_logits(p: Tensor, targets: Tensor, entropy: Tensor, g: Tensor, h: Tensor | None) -> Tensor:
    """The gradient of the logits, written over `p` [n, V]."""
    if h is None:
        p.mul_(g.neg()[:, None])
    else:
        bent = torch.xlogy(p, p).mul_(h[:, None])
        p.mul_((-g - h * entropy)[:, None]).sub_(bent)
    return p.scatter_add_(1, targets[:, None], g[:, None])


def _chunks(positions: int, vocabulary: int, dtype: torch.dtype) -> Iterator[slice]:
    most = max(1, CHUNK_BYTES // (vocabulary * dtype.itemsize))
    count = -(-positions // most)
    size = -(-positions // count) if count else 1
    return (slice(begin, begin + size) for begin in range(0, positions, size))


def _any(x: Tensor) -> bool:
    return bool(x.any())
