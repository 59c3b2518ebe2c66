"""The private spec keys of every objective. Light: no numpy, no torch.

All policy-gradient objectives share `PolicyOptions`; each restates only the defaults that its paper
sets differently.
"""

from __future__ import annotations

from typing import Any, Literal

from attrs import field, frozen

Level = Literal["token", "sequence", "geometric"]
Estimator = Literal["k1", "k2", "k3"]
Scale = Literal["group", "batch", "none"]
EqualGroups = Literal["skip", "count"]


def _doc(text: str, default: Any, **bounds: float) -> Any:
    return field(default=default, metadata={"doc": text, **bounds})


def _clip_low(default: float) -> Any:
    return _doc("The ratio is clipped at 1 - clip_low from below.", default, ge=0, le=1)


def _clip_high(default: float) -> Any:
    return _doc("The ratio is clipped at 1 + clip_high from above.", default, ge=0)


def _scale(default: Scale) -> Any:
    return _doc("Divide centred rewards by the standard deviation of the group, of the batch, or not.", default)


def _equal_groups() -> Any:
    return _doc("Groups of equal reward: left out of the policy term's denominator, or counted in it.", "skip")


@frozen(kw_only=True, repr=False, unsafe_hash=False)
class PolicyOptions:
    """What all policy-gradient objectives can be told."""

    clip_low: float = _clip_low(0.2)
    clip_high: float = _clip_high(0.2)
    decoupled: bool = _doc(
        "Clip against the policy at the start of the step and weight by its ratio to the behaviour policy; "
        "false clips against the behaviour policy itself.",
        True,
    )
    behaviour_level: Level = _doc(
        "That weight per token, as the product over the answer, or as its geometric mean over the answer.", "token"
    )
    behaviour_cap: float | None = _doc("Largest weight; null is no limit.", 5.0, gt=0)
    behaviour_excess: Literal["truncate", "mask"] = _doc(
        "Weights above the cap are set to it, or their tokens are left out.", "truncate"
    )
    kl: float = _doc("Coefficient of the KL divergence from the reference policy; 0 is off.", 0.0, ge=0)
    kl_in: Literal["loss", "reward"] = _doc("A term of the loss, or a penalty on the reward.", "loss")
    kl_estimator: Estimator | None = _doc(
        "How the divergence's value is estimated; k3 in the loss and k1 in the reward when left out.", None
    )
    entropy: float = _doc("Coefficient of the entropy bonus; 0 is off.", 0.0, ge=0)
    mask_truncated: bool = _doc("Do not train on answers that hit the length limit.", False)

    @property
    def reward_kl(self) -> float:
        """The coefficient with which the reward is penalized."""
        return self.kl if self.kl_in == "reward" else 0.0

    @property
    def loss_kl(self) -> float:
        """The coefficient of the loss's term."""
        return self.kl if self.kl_in == "loss" else 0.0


@frozen(kw_only=True, repr=False, unsafe_hash=False)
class GrpoOptions(PolicyOptions):
    """Options of `grpo`."""

    scale: Scale = _scale("group")
    equal_groups: EqualGroups = _equal_groups()


@frozen(kw_only=True, repr=False, unsafe_hash=False)
class DrGrpoOptions(PolicyOptions):
    """Options of `dr-grpo`."""

    scale: Scale = _scale("none")
    equal_groups: EqualGroups = _equal_groups()
    max_length: int | None = _doc(
        "The constant that token sums are divided by; inference.sampling.max_new_tokens when left out.", None, ge=1
    )


@frozen(kw_only=True, repr=False, unsafe_hash=False)
class DapoOptions(PolicyOptions):
    """Options of `dapo`; the clip range is that of the paper, section 4.1."""

    clip_high: float = _clip_high(0.28)
    scale: Scale = _scale("group")
    equal_groups: EqualGroups = _equal_groups()
    dynamic_sampling: bool = _doc("Roll out another task in place of a group whose rewards are all equal.", True)
    overlong_buffer: int = _doc(
        "Tokens before the length limit over which a penalty on length rises; 0 is off (the paper: a fifth of it).",
        0,
        ge=0,
    )
    overlong_penalty: float = _doc("The penalty at the limit.", 1.0, ge=0)


@frozen(kw_only=True, repr=False, unsafe_hash=False)
class GspoOptions(PolicyOptions):
    """Options of `gspo`; the clip range is that of the paper, section 5.1."""

    clip_low: float = _clip_low(3e-4)
    clip_high: float = _clip_high(4e-4)
    behaviour_level: Level = _doc(
        "The behaviour weight per token, as the product over the answer, or as its geometric mean.", "geometric"
    )
    scale: Scale = _scale("group")
    equal_groups: EqualGroups = _equal_groups()


@frozen(kw_only=True, repr=False, unsafe_hash=False)
class CispoOptions(PolicyOptions):
    """Options of `cispo`. It clips the importance weight itself, which leaves nothing to decouple."""

    clip_low: float = _clip_low(1.0)
    clip_high: float = _clip_high(4.0)
    decoupled: bool = _doc("Split the weight at the policy at the start of the step, and clip its newer part.", False)
    scale: Scale = _scale("group")
    equal_groups: EqualGroups = _equal_groups()


@frozen(kw_only=True, repr=False, unsafe_hash=False)
class RlooOptions(PolicyOptions):
    """Options of `rloo`."""

    kl_in: Literal["loss", "reward"] = _doc("A term of the loss, or a penalty on the reward.", "reward")
    equal_groups: EqualGroups = _equal_groups()


@frozen(kw_only=True, repr=False, unsafe_hash=False)
class ReinforcePlusPlusOptions(PolicyOptions):
    """Options of `reinforce++`."""

    kl_in: Literal["loss", "reward"] = _doc("A term of the loss, or a penalty on every token's reward.", "reward")
    baseline: Literal["none", "group"] = _doc("Subtract the group's mean reward before normalizing.", "none")


@frozen(kw_only=True, repr=False, unsafe_hash=False)
class PpoOptions(PolicyOptions):
    """Options of `ppo`."""

    kl_in: Literal["loss", "reward"] = _doc("A term of the loss, or a penalty on every token's reward.", "reward")
    gamma: float = _doc("Discount of a token.", 1.0, gt=0, le=1)
    gae_lambda: float = _doc("Decay of the advantage estimator.", 0.95, ge=0, le=1)
    normalize: bool = _doc("Give the batch's advantages mean 0 and standard deviation 1.", True)
    value_coefficient: float = _doc("Weight of the value loss.", 0.5, ge=0)
    value_clip: float | None = _doc("How far a value may move in a step before its loss is clipped.", 0.2, gt=0)
