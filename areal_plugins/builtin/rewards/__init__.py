"""Judges of answers: descriptors only."""

from __future__ import annotations

from areal_plugins import RewardCapabilities, RewardDescriptor

_HERE = "areal_plugins.builtin.rewards"

DESCRIPTORS: tuple[RewardDescriptor, ...] = (
    RewardDescriptor(
        name="exact",
        summary="1 where the answer equals the task's, as text or as a number",
        factory=f"{_HERE}.exact:Exact",
        options=f"{_HERE}.options:ExactOptions",
    ),
    RewardDescriptor(
        name="regex",
        summary="1 where the answer matches a regular expression",
        factory=f"{_HERE}.regex:Regex",
        options=f"{_HERE}.options:RegexOptions",
    ),
    RewardDescriptor(
        name="format",
        summary="1 where the answer is made of the wanted elements, <think>...</think><answer>...</answer>",
        factory=f"{_HERE}.format:Format",
        options=f"{_HERE}.options:FormatOptions",
    ),
    RewardDescriptor(
        name="length",
        summary="1 within limits of length, falling linearly beyond",
        factory=f"{_HERE}.length:Length",
        options=f"{_HERE}.options:LengthOptions",
    ),
    RewardDescriptor(
        name="function",
        summary="A Python function of the Sample: package.module:function or ./file.py:function",
        factory=f"{_HERE}.function:Function",
        options=f"{_HERE}.options:FunctionOptions",
        capabilities=RewardCapabilities(isolated=True),
    ),
    RewardDescriptor(
        name="math",
        summary="1 where the answer is mathematically equal to the task's (math-verify, in killable processes)",
        factory=f"{_HERE}.math:Math",
        options=f"{_HERE}.options:MathOptions",
        capabilities=RewardCapabilities(isolated=True),
        requires=("math-verify>=0.8",),
    ),
)
