"""TRL: a YAML for `trl grpo --config`: the fields of GRPOConfig, TrainingArguments, ModelConfig and of its script.

Facts from `trl/trainer/{grpo_config,base_config,model_config,grpo_trainer}.py` and `trl/scripts/grpo.py`.
"""

from __future__ import annotations

from areal_plugins.convert.table import Framework
from areal_plugins.convert.trl.rules import RULES
from areal_plugins.convert.trl.values import DEFAULTS

FRAMEWORK = Framework(
    "trl",
    "a GRPO config of TRL",
    "trl/trainer/grpo_config.py of huggingface/trl, July 2026",
    RULES,
    DEFAULTS,
)
