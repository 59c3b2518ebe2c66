"""A spec with overrides, as `explain` sees it."""

from __future__ import annotations

from pathlib import Path

import pytest

from areal_core.spec import examine
from areal_plugins.explain import explanation

SPEC = """\
name: shown
model: {type: tiny}
platform: cpu
weights: {type: shm}
training: {batch_size: 16}
objective: {type: grpo, group_size: 4}
environments: [{type: jsonl, path: data.jsonl, test_fraction: 0.5, reward: exact}]
"""


@pytest.fixture
def explained(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AREAL_PLUGINS_AUTOLOAD", "0")
    Path("data.jsonl").write_text('{"prompt": "1+1", "answer": "2"}\n')

    def of(*overrides: str, text: str = SPEC):
        Path("spec.yaml").write_text(text)
        return explanation(examine("spec.yaml", overrides))

    return of
