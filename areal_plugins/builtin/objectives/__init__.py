"""Training objectives: descriptors only. `docs/objectives.md` has their formulas and options."""

from __future__ import annotations

from areal_plugins import ObjectiveCapabilities, ObjectiveDescriptor
from areal_plugins.builtin.objectives import check

_HERE = "areal_plugins.builtin.objectives"
_GROUPED = ObjectiveCapabilities(min_group_size=2)

DESCRIPTORS: tuple[ObjectiveDescriptor, ...] = (
    ObjectiveDescriptor(
        name="grpo",
        summary="Group-relative advantages, mean of sequence means (arXiv 2402.03300)",
        factory=f"{_HERE}.grpo:grpo",
        options=f"{_HERE}.options:GrpoOptions",
        capabilities=_GROUPED,
        check=check.divergence,
    ),
    ObjectiveDescriptor(
        name="dr-grpo",
        summary="GRPO without its length and difficulty biases (arXiv 2503.20783)",
        factory=f"{_HERE}.dr_grpo:dr_grpo",
        options=f"{_HERE}.options:DrGrpoOptions",
        capabilities=_GROUPED,
        check=check.divergence,
    ),
    ObjectiveDescriptor(
        name="dapo",
        summary="Clip-higher, dynamic sampling, token-level loss, overlong shaping (arXiv 2503.14476)",
        factory=f"{_HERE}.dapo:dapo",
        options=f"{_HERE}.options:DapoOptions",
        capabilities=ObjectiveCapabilities(min_group_size=2, dynamic_sampling=True),
        check=check.dapo,
    ),
    ObjectiveDescriptor(
        name="gspo",
        summary="Ratio and clipping of whole sequences (arXiv 2507.18071)",
        factory=f"{_HERE}.gspo:gspo",
        options=f"{_HERE}.options:GspoOptions",
        capabilities=_GROUPED,
        check=check.divergence,
    ),
    ObjectiveDescriptor(
        name="cispo",
        summary="REINFORCE under clipped importance weights (arXiv 2506.13585)",
        factory=f"{_HERE}.cispo:cispo",
        options=f"{_HERE}.options:CispoOptions",
        capabilities=_GROUPED,
        check=check.divergence,
    ),
    ObjectiveDescriptor(
        name="rloo",
        summary="REINFORCE with a leave-one-out baseline (arXiv 2402.14740)",
        factory=f"{_HERE}.rloo:rloo",
        options=f"{_HERE}.options:RlooOptions",
        capabilities=_GROUPED,
        check=check.divergence,
    ),
    ObjectiveDescriptor(
        name="reinforce++",
        summary="Advantages normalized over the whole batch, no critic (arXiv 2501.03262)",
        factory=f"{_HERE}.reinforce_pp:reinforce_pp",
        options=f"{_HERE}.options:ReinforcePlusPlusOptions",
        check=check.reinforce_pp,
    ),
    ObjectiveDescriptor(
        name="ppo",
        summary="Proximal policy optimization with a critic and GAE (arXiv 1707.06347)",
        factory=f"{_HERE}.ppo:ppo",
        options=f"{_HERE}.options:PpoOptions",
        capabilities=ObjectiveCapabilities(critic=True),
        check=check.divergence,
    ),
    ObjectiveDescriptor(
        name="sft",
        summary="Imitates the tasks' demonstrations: mean negative log-likelihood of a token",
        factory=f"{_HERE}.sft:sft",
        capabilities=ObjectiveCapabilities(source="demonstrate"),
    ),
)
