"""The environment `reasoning-gym`: tasks that are generated without end and judged by their generator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from attrs import field, frozen

from areal_plugins import EnvironmentCapabilities, EnvironmentDescriptor, hookimpl

_OWN_KEYS = {"seed": "the spec's seed", "size": "train_size and test_size"}


def _doc(text: str, default: Any = None, **limits: Any) -> Any:
    return field(default=default, metadata={"doc": text, **limits})


@frozen(kw_only=True)
class ReasoningGymOptions:
    """One of reasoning-gym's data sets."""

    task: str = field(metadata={"doc": "Name of the data set, such as chain_sum."})
    config: Mapping[str, Any] = field(factory=dict, metadata={"doc": "Its configuration, such as {max_terms: 3}."})
    train_size: int | None = _doc("Tasks to train on; null: without end.", ge=1)
    test_size: int | None = _doc("Held-out tasks; null: without end.", ge=1)
    test_share: float = _doc(
        "Share of all questions that is held out; a question's text alone decides, whatever the seed.", 0.2, gt=0, lt=1
    )
    prompt: Literal["plain", "chat"] = _doc(
        "Send the question as it is, or as a user's message through the model's chat template.", "chat"
    )
    system: str | None = _doc("System message before it; needs `prompt: chat`.")
    instruction: str | None = _doc("Written after the question, such as: Answer with the number only.")
    answer: Literal["strict", "last-number", "last-line", "answer-tag"] = _doc(
        "What is judged: the whole answer, the last number or line in it, or what stands in <answer>...</answer>.",
        "strict",
    )
    partial_credit: bool = _doc(
        "Scores between 0 and 1 as the data set gives them; false: only its full score counts, as 1.", False
    )
    timeout: float | None = _doc(
        "Seconds one judgement may take, where the data set has a judge of its own: it runs in a process that is "
        "killed. null: it runs in the worker, and nothing stops it.",
        10.0,
        gt=0,
    )
    workers: int = _doc("Such processes, at most.", 1, ge=1)

    def __attrs_post_init__(self) -> None:
        for key, instead in _OWN_KEYS.items():
            if key in self.config:
                raise ValueError(f"config must not set {key}: use {instead}")
        if self.system is not None and self.prompt == "plain":
            raise ValueError("system is a message, which needs `prompt: chat`")


@hookimpl
def areal_environments() -> tuple[EnvironmentDescriptor, ...]:
    """The one environment."""
    return (
        EnvironmentDescriptor(
            name="reasoning-gym",
            summary="Generated tasks with verifiable answers: arithmetic, algebra, logic, games (arXiv 2505.24760)",
            factory="areal_plugin_reasoning_gym.environment:make",
            options=ReasoningGymOptions,
            capabilities=EnvironmentCapabilities(scores=True, demonstrations=True),
            requires=("reasoning-gym>=0.1.20",),
        ),
    )
