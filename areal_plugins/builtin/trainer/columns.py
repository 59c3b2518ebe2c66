"""What an objective's loss is given for one micro-batch."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from attrs import frozen
from torch import Tensor

from areal_core.batch import BatchArrays, LossInputs, Targets
from areal_plugins.builtin.trainer.packing import Packed


@frozen(eq=False)
class BatchColumns:
    """Arrays [T] over the whole batch. `proximal` None: the policy has not moved yet, so it is the current one."""

    arrays: BatchArrays
    targets: Targets
    proximal: np.ndarray | None

    def floats(self, share: float) -> dict[str, np.ndarray]:
        """Columns by their name in `LossInputs`; weights are divided by `share`, the part's share of the batch."""
        arrays, targets = self.arrays, self.targets
        columns = {
            "behaviour": arrays.behaviour,
            "advantages": targets.advantages,
            "weights": targets.weights / share,
            "mask": arrays.mask,
            "proximal": self.proximal,
            "reference": arrays.reference,
            "old_values": arrays.values,
            "returns": targets.returns,
        }
        return {name: column for name, column in columns.items() if column is not None}


@frozen(eq=False)
class Outputs:
    """What the models make of a micro-batch, all [t]."""

    logp: Tensor
    entropy: Tensor | None
    values: Tensor | None

    def detached(self) -> Outputs:
        """Copies that the loss is made of, so that its gradient can be looked at before the models' backward pass."""
        logp, *others = (None if o is None else o.detach().requires_grad_(o.requires_grad) for o in self)
        assert logp is not None
        return Outputs(logp, *others)

    def __iter__(self) -> Iterator[Tensor | None]:
        return iter((self.logp, self.entropy, self.values))


def loss_inputs(columns: BatchColumns, share: float, packed: Packed, outputs: Outputs) -> LossInputs:
    """The columns of `packed` beside what the models make of it, in the precision of the log-probabilities."""
    logp = outputs.logp
    floats = columns.floats(share)
    stacked = torch.from_numpy(np.stack([column[packed.units] for column in floats.values()]))
    named = dict(zip(floats, stacked.to(logp.device, logp.dtype), strict=True))
    named.setdefault("proximal", logp.detach())
    return LossInputs(
        logp=logp,
        trajectory=torch.from_numpy(packed.trajectory).to(logp.device),
        lag=torch.from_numpy(columns.arrays.lag[packed.units]).to(logp.device),
        entropy=outputs.entropy,
        values=outputs.values,
        **named,
    )
