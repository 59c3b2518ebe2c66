"""Small models, batches of random trajectories, and the plain computation they are compared with."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from areal_core.contexts import ObjectiveContext, OptimizerContext, OptimizerPlan, Place, StagePlan, TrainerContext
from areal_plugins.builtin.objectives.grpo import grpo
from areal_plugins.builtin.objectives.options import GrpoOptions
from areal_plugins.builtin.trainer import AdamWOptions, TorchTrainerOptions
from areal_plugins.builtin.trainer.optimizer import adamw
from areal_plugins.builtin.trainer.trainer import TorchTrainer
from areal_plugins.testing.conformance import batches

VOCABULARY = 13


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


def make_config(kind: str = "qwen2", **changes: Any) -> Any:
    shape = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "intermediate_size": 48,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 256,
        "initializer_range": 0.2,
        "pad_token_id": None,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    return AutoConfig.for_model(kind, **(shape | changes))


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A directory with a random model of the architecture; made once a session."""
    made: dict[Any, Path] = {}

    def make(kind: str = "qwen2", **changes: Any) -> Path:
        key = (kind, tuple(sorted((k, str(v)) for k, v in changes.items())))
        if key not in made:
            made[key] = tmp_path_factory.mktemp(kind)
            with torch.random.fork_rng():
                torch.manual_seed(7)
                model = AutoModelForCausalLM.from_config(make_config(kind, **changes))
                for parameter in model.parameters():  # norms and biases too, so that a mix-up shows
                    parameter.data += 0.1 * torch.randn_like(parameter)
            model.save_pretrained(made[key])
        return made[key]

    return make


class Recorder(torch.optim.SGD):
    """Moves nothing; keeps the gradients it was given, by parameter order of the model's groups."""

    def __init__(self, context: OptimizerContext) -> None:
        super().__init__(list(context.parameters), lr=0.0)
        self.taken: list[list[torch.Tensor]] = []

    def step(self, closure: Any = None) -> None:
        self.taken.append([p.grad.clone() for g in self.param_groups for p in g["params"]])


@pytest.fixture
def build(model_dir: Callable[..., Path], tmp_path: Path) -> Callable[..., TorchTrainer]:
    """A trainer on a model directory (a small qwen2 when left out)."""

    def make(directory: Path | None = None, **context: Any) -> TorchTrainer:
        options = context.pop("options", TorchTrainerOptions())
        known = {"dtype": "float32", "place": Place(), "seed": 1, "work": tmp_path}
        return TorchTrainer(options, TrainerContext(model=directory or model_dir(), **(known | context)))

    return make


def make_stage(objective: Any = None, *, optimizer: Any = None, **changes: Any) -> StagePlan:
    """A stage under AdamW and grpo, unless told otherwise; what `OptimizerPlan` has goes there."""
    plan = {
        "build": optimizer or (lambda context: adamw(AdamWOptions(), context)),
        "learning_rate": 1e-2,
        "total_steps": 10,
        "grad_clip": None,
    }
    plan |= {name: changes.pop(name) for name in list(changes) if name in OptimizerPlan.__annotations__}
    objective = objective or grpo(GrpoOptions(), ObjectiveContext(1.0, 8, 12, 4))
    return StagePlan("s", objective, OptimizerPlan(**plan), changes.pop("batch_size", 12), **changes)


@pytest.fixture
def tools() -> Any:
    """The helpers above, for tests cannot import this file."""

    class Tools:
        config = staticmethod(make_config)
        trajectory = staticmethod(batches.trajectory)
        batch = staticmethod(batches.batch)
        random_batch = staticmethod(batches.random_batch)
        stage = staticmethod(make_stage)
        plain_logp = staticmethod(plain_logp)
        Recorder = Recorder

    return Tools


def plain_logp(model: Any, tokens: np.ndarray, temperature: float = 1.0) -> torch.Tensor:
    """[N - 1] log-probability of each token after the first: one sequence, all logits, nothing clever."""
    ids = torch.from_numpy(tokens.astype(np.int64))[None]
    logits = model(input_ids=ids, use_cache=False).logits[0, :-1] / temperature
    return logits.log_softmax(-1).gather(1, ids[0, 1:, None]).squeeze(1)
