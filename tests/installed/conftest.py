"""Distributions that are really built, and really installed by pip into an environment of their own.

The environment sees the packages of the interpreter that runs the tests, so that nothing is downloaded.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

PIP = ("install", "--no-deps", "--no-index", "--no-compile", "--disable-pip-version-check", "--quiet")


class Environment:
    """A virtual environment."""

    def __init__(self, folder: Path) -> None:
        venv.EnvBuilder(with_pip=False, symlinks=True).create(folder)
        scheme = {"base": str(folder), "platbase": str(folder)}
        self.packages = Path(sysconfig.get_path("purelib", "venv", scheme))
        self.python = Path(sysconfig.get_path("scripts", "venv", scheme)) / "python"
        shared = sysconfig.get_path("purelib")
        (self.packages / "shared.pth").write_text(f"import site; site.addsitedir({shared!r})\n")

    def install(self, *wheels: Path) -> None:
        done = run([sys.executable, "-m", "pip", "--python", str(self.python), *PIP, *map(str, wheels)])
        assert done.returncode == 0, done.stdout + done.stderr

    def areal(self, *argv: str, cwd: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
        """`areal-plugins`, as it is found there."""
        return self.run("-m", "areal_plugins", *argv, cwd=cwd, **variables)

    def run(self, *argv: str, cwd: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
        return run([str(self.python), "-P", *argv], cwd=cwd, env={**os.environ, **variables})

    def shell(self, script: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        """Commands with its programs first on the path; `pip` builds with what is here, and downloads nothing."""
        pip = {"PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_QUIET": "1"}
        path = f"{self.python.parent}{os.pathsep}{os.environ['PATH']}"
        return run(["sh", "-e", "-c", script], cwd=cwd, env={**os.environ, **pip, "PATH": path})

    def data(self, *argv: str, **variables: str) -> Any:
        done = self.areal(*argv, "--json", **variables)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


def run(
    command: list[str], cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)


@pytest.fixture(scope="session")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Environment]:
    """Makes environments."""
    return lambda: Environment(tmp_path_factory.mktemp("environment"))


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Writes the wheel of a distribution with one module, which is its plugin."""
    folder = tmp_path_factory.mktemp("wheels")

    def write(name: str, source: str, version: str = "1.0") -> Path:
        module = name.replace("-", "_")
        info = f"{module}-{version}.dist-info"
        files = {
            f"{module}.py": source,
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
            f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            f"{info}/entry_points.txt": f"[areal_plugins]\n{name} = {module}\n",
        }
        listed = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
        file = folder / f"{module}-{version}-py3-none-any.whl"
        with zipfile.ZipFile(file, "w") as archive:
            for path, text in {**files, f"{info}/RECORD": listed}.items():
                archive.writestr(path, text)
        return file

    return write
