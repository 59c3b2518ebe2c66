"""What the wheel holds, and what importing it costs."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "transformers", "vllm", "ray", "torch_npu", "numpy", "rich")


def python(code: str, cwd: Path) -> str:
    """Output of a fresh interpreter that sees installed packages only."""
    run = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, cwd=cwd, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_the_wheel_holds_exactly_the_two_packages():
    files = metadata.distribution("areal-plugins").files or []
    tops = {
        path.parts[0] for path in files if path.parts[0] != ".." and not path.parts[0].endswith((".dist-info", ".pth"))
    }
    if any(str(path).endswith(".pth") for path in files):
        pytest.skip("an editable install has no files of its own")
    assert tops == {"areal_plugins", "areal_core"}


@pytest.mark.parametrize("name", ["core", "plugins", "specs", "tests", "benchmarks"])
def test_folders_of_the_repository_are_not_importable(name, tmp_path):
    code = f"import importlib.util; print(importlib.util.find_spec({name!r}))"
    if any(str(p).endswith(".pth") for p in metadata.distribution("areal-plugins").files or []):
        pytest.skip("an editable install puts the repository on the path")
    assert python(code, tmp_path).strip() == "None"


@pytest.mark.parametrize(
    "argv",
    [
        ["plugins", "list"],
        ["plugins", "list", "--json"],
        ["check", str(ROOT / "specs/gsm8k_grpo_npu.yaml")],
        ["--help"],
    ],
)
def test_light_commands_import_nothing_heavy(argv, tmp_path):
    code = (
        "import sys\nfrom areal_plugins.cli import main\n"
        f"try:\n    main({argv!r})\nexcept SystemExit:\n    pass\n"
        f"print('loaded:', [name for name in {HEAVY!r} if name in sys.modules])"
    )
    assert python(code, tmp_path).strip().endswith("loaded: []")


def test_the_public_face_imports_nothing_heavy(tmp_path):
    code = f"import sys, areal_plugins; print([name for name in {HEAVY!r} if name in sys.modules])"
    assert python(code, tmp_path).strip() == "[]"


def test_the_kernel_never_imports_torch_or_our_other_package():
    offenders = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in (ROOT / "core/areal_core").rglob("*.py")
        for line in path.read_text().splitlines()
        if re.match(r"\s*(from|import) (torch|transformers|vllm|ray|areal_plugins)\b", line)
    ]
    assert offenders == []


def test_first_party_plugins_import_the_public_face_only():
    offenders = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in (ROOT / "plugins").rglob("*.py")
        if "tests" not in path.parts
        for line in path.read_text().splitlines()
        if re.match(r"\s*(from|import) areal_core\b", line)
    ]
    assert offenders == []
