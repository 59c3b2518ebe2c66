"""The policy: log-probabilities of a micro-batch under any transformers causal LM."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from areal_plugins.builtin.trainer import decoder
from areal_plugins.builtin.trainer.logprob import Head, log_probabilities
from areal_plugins.builtin.trainer.micro import Micro


class Policy:
    """A causal LM that reads packed tokens.

    `compute` is the format of matrix products: where it differs from the weights', autocast does
    the work. `keep` bytes of probabilities may wait for the backward pass.
    """

    def __init__(self, model: Any, compute: torch.dtype, keep: int) -> None:
        self.model = model
        self.compute = compute
        self._keep = keep
        self._output = model.get_output_embeddings()
        text = model.config.get_text_config()
        self._cap: float | None = getattr(text, "final_logit_softcapping", None)
        self._factor = float(getattr(text, "logit_scale", None) or 1 / (getattr(text, "logits_scaling", None) or 1))

    @property
    def device(self) -> torch.device:
        weight: Tensor = self._output.weight
        return weight.device

    @property
    def trainable(self) -> dict[str, nn.Parameter]:
        """Parameters that training changes, by name; tied ones once."""
        return {name: p for name, p in self.model.named_parameters() if p.requires_grad}

    def score(self, micro: Micro, temperature: float, entropy_gradient: bool = False) -> tuple[Tensor, Tensor]:
        """Log-probabilities and entropies [t] of the trained units, of the logits over `temperature`."""
        hidden = read(self.model.base_model, micro, self.autocast())
        return log_probabilities(hidden, micro.targets, self.head(temperature), entropy_gradient)

    def head(self, temperature: float) -> Head:
        """The output layer at `temperature`."""
        layer = self._output
        return Head(layer.weight, layer.bias, self._factor / temperature, self._cap, self.compute, self._keep)

    def autocast(self) -> AbstractContextManager[Any]:
        """What the model's layers run under."""
        if self.compute == self._output.weight.dtype:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self.compute)


def read(backbone: nn.Module, micro: Micro, under: AbstractContextManager[Any]) -> Tensor:
    """[t, C] hidden states at which the trained units are predicted."""
    with under:
        if decoder.is_known(backbone):
            every = decoder.decode(backbone, micro.tokens, micro.positions, micro.grid)
        else:
            out = backbone(input_ids=micro.tokens, position_ids=micro.positions, use_cache=False, grid=micro.grid)
            every = out.last_hidden_state[0]
    return every.index_select(0, micro.predict)


@contextmanager
def evaluating(*models: nn.Module | None) -> Iterator[None]:
    """No gradients, and no dropout."""
    training = [model for model in models if model is not None and model.training]
    for model in training:
        model.eval()
    with torch.no_grad():
        yield
    for model in training:
        model.train()
