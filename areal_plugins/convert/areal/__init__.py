"""AReaL 1.0: the YAML of its GRPO examples.

Facts from `areal/api/cli_args.py`, `areal/api/alloc_mode.py` and `areal/trainer/ppo/actor.py` of release 1.0.4.
"""

from __future__ import annotations

from areal_plugins.convert.areal.rules import RULES
from areal_plugins.convert.areal.values import DEFAULTS
from areal_plugins.convert.table import Framework

FRAMEWORK = Framework(
    "areal",
    "an experiment of AReaL 1.0",
    "areal/api/cli_args.py of inclusionAI/AReaL, release 1.0.4",
    RULES,
    DEFAULTS,
)
