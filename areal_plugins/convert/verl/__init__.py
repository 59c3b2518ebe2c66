"""verl: its Hydra YAML of PPO and GRPO, or the overrides of a launch script.

Facts from `verl/trainer/config/_generated_ppo_trainer.yaml`, `verl/trainer/ppo/{core_algos,ray_trainer}.py` and
`verl/workers/fsdp_workers.py`.
"""

from __future__ import annotations

from areal_plugins.convert.table import Framework
from areal_plugins.convert.verl.defaults import DEFAULTS
from areal_plugins.convert.verl.rules import RULES

FRAMEWORK = Framework(
    "verl",
    "a trainer config of verl",
    "verl/trainer/config/_generated_ppo_trainer.yaml of volcengine/verl, January 2026",
    RULES,
    DEFAULTS,
)
