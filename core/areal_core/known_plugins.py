"""First-party components that live in distributions of their own: what to install for which name."""

from __future__ import annotations

_BY_DISTRIBUTION: dict[str, tuple[str, ...]] = {
    "areal-plugins-ascend": ("platform/npu",),
    "areal-plugins-deepspeed": ("trainer/deepspeed", "optimizer/onebit-adam"),
    "areal-plugins-fsdp2": ("trainer/fsdp2", "parallelism/tp", "parallelism/sp", "parallelism/pp"),
    "areal-plugins-gym": ("environment/gymnasium", "engine/policy", "objective/vtrace"),
    "areal-plugins-code": ("environment/humaneval", "environment/mbpp", "reward/code"),
    "areal-plugins-agents": ("environment/tools", "environment/agent", "environment/verifiers", "environment/math"),
    "areal-plugins-judges": ("reward/model", "reward/remote"),
    "areal-plugins-moe": ("model/moe", "parallelism/ep"),
    "areal-plugins-ray": ("executor/ray",),
    "areal-plugins-reasoning-gym": ("environment/reasoning-gym",),
    "areal-plugins-sglang": ("engine/sglang",),
    "areal-plugins-smollm2": ("model/gguf", "model/smollm2-135m"),
    "areal-plugins-trackers": ("tracker/wandb", "tracker/mlflow", "tracker/trackio"),
    "areal-plugins-vllm": ("engine/vllm",),
    "areal-plugins-xccl": ("transport/xccl",),
}

KNOWN: dict[tuple[str, str], str] = {
    (kind, name): distribution
    for distribution, components in _BY_DISTRIBUTION.items()
    for kind, _, name in (component.partition("/") for component in components)
}
"""(kind, name) -> distribution."""

SYNONYMS: dict[tuple[str, str], str] = {
    ("transport", "hccl"): "xccl",
    ("transport", "nccl"): "xccl",
    ("transport", "gloo"): "xccl",
    ("platform", "ascend"): "npu",
    ("platform", "gpu"): "cuda",
}
"""Names that people try, and what they are called here; used in suggestions only."""
