"""What the tests of the tables share: a config as the values of its spec."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from areal_core.spec.load import compose
from areal_core.spec.node import Source, plain
from areal_plugins.convert import Conversion, Facts, convert


@pytest.fixture
def meant(tmp_path, monkeypatch):
    """The value at a dotted key of the spec that a config becomes; None where it is left to our default."""
    monkeypatch.chdir(tmp_path)

    def of(name: str, text: str, key: str, **facts: Any) -> Any:
        node: Any = spec(convert_text(name, text, **facts))
        for part in key.split("."):
            node = node[int(part)] if isinstance(node, list) else (node or {}).get(part)
        return node

    return of


@pytest.fixture
def lost(tmp_path, monkeypatch):
    """The keys of a config that cannot be carried over."""
    monkeypatch.chdir(tmp_path)
    return lambda name, text, **facts: {
        key for entry in convert_text(name, text, **facts).of("lost") for key in entry.keys
    }


def convert_text(name: str, text: str, **facts: Any) -> Conversion:
    Path("theirs.yaml").write_text(text)
    return convert(name, "theirs.yaml", Facts(**facts))


def spec(conversion: Conversion) -> Any:
    return plain(compose(Source("spec", conversion.text, Path()), None))
