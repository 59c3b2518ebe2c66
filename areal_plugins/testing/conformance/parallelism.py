"""What a way to spread a model must keep. Needs torch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh

from areal_core.protocols import Parallelism
from areal_plugins.testing.conformance.base import Conformance, Subject
from areal_plugins.testing.conformance.reference import load, reference

SHAPE = {
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 8,
    "vocab_size": 1024,
    "num_experts": 8,
}
ODD = 7919
"""A prime that divides no size of a model."""


class ParallelismConformance(Conformance):
    """Rules for ways to spread a model: on one device it must change nothing.

    `shape`: sizes of a model that the axis may look at, all of which 2 divides.
    `tolerance`: largest difference of a logit.
    """

    kind: ClassVar[str] = "parallelism"
    shape: ClassVar[dict[str, int]] = SHAPE
    tolerance: ClassVar[float] = 1e-6

    @pytest.fixture
    def parallelism(self, subject: Subject) -> Parallelism:
        """The way to spread."""
        made: Parallelism = subject.build(None)
        return made

    @pytest.fixture
    def mesh(self, subject: Subject, tmp_path: Path) -> Iterator[Any]:
        """A mesh of this process alone, whose one dimension is the axis."""
        store = f"file://{tmp_path}/store"
        distributed.init_process_group("gloo", init_method=store, rank=0, world_size=1)
        yield init_device_mesh("cpu", (1,), mesh_dim_names=(subject.descriptor.capabilities.axis,))
        distributed.destroy_process_group()

    def test_its_axis_has_a_name(self, subject: Subject) -> None:
        """The axis can be written in a spec's `parallel`, and is not `dp`, which trainers do themselves."""
        axis = subject.descriptor.capabilities.axis
        assert axis.isidentifier(), f"the axis {axis!r} is no name"
        assert axis != "dp", "its axis is dp"

    def test_one_device_divides_everything(self, parallelism: Parallelism) -> None:
        """Spread over one device, or over two where every size is even, nothing is wrong."""
        for size in (1, 2):
            problems = list(parallelism.divides(self.shape, size))
            assert not problems, f"over {size}: {'; '.join(map(str, problems))}"

    def test_what_does_not_divide_is_named(self, parallelism: Parallelism) -> None:
        """A size that does not divide is said in words, with both numbers."""
        problems = list(parallelism.divides(self.shape, ODD))
        assert problems, f"{ODD} devices divide a model of {self.shape}"
        assert all(isinstance(problem, str) for problem in problems), f"no texts: {problems}"
        assert all(str(ODD) in problem for problem in problems), f"they do not say what does not divide: {problems}"

    def test_on_one_device_the_model_is_the_same(self, parallelism: Parallelism, mesh: Any) -> None:
        """Over a mesh of one device the model computes what it computed."""
        tokens = torch.tensor([[1, 2, 3, 4, 5]])
        with torch.no_grad():
            before = load(reference(seed=0).directory)(tokens).logits
            after = parallelism.apply(load(reference(seed=0).directory), mesh)(tokens).logits
        worst = float((before - after).abs().max())
        assert worst <= self.tolerance, f"a logit differs by {worst:.3g}"

    def test_parameters_keep_their_names(self, parallelism: Parallelism, mesh: Any) -> None:
        """Weights are published and saved under the model's own names."""
        model = load(reference(seed=0).directory)
        names = sorted(name for name, _ in model.named_parameters())
        found = sorted(name for name, _ in parallelism.apply(model, mesh).named_parameters())
        assert found == names, f"names that come or go: {sorted(set(found) ^ set(names))[:4]}"
