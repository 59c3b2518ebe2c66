"""`plugins new` for every kind: the project is built, installed with pip, tested as it is, and used in a run."""

from __future__ import annotations

import json
import re
from collections import Counter
from importlib.metadata import entry_points
from pathlib import Path
from xml.etree import ElementTree

import pytest

from areal_core.hookspecs import COMPONENT_HOOKS
from areal_plugins import cli

KINDS = tuple(COMPONENT_HOOKS)
every_kind = pytest.mark.parametrize("kind", KINDS)

BUILD = """
import os, sys
from hatchling.build import build_wheel

for folder in sys.argv[2:]:
    os.chdir(folder)
    build_wheel(sys.argv[1])
"""

RUN = """
import json, os, sys
from areal_plugins.cli import main

codes = {}
for folder in sys.argv[1:]:
    os.chdir(folder)
    print(folder, flush=True)
    codes[folder] = main(["run", "example.yaml", "--run-dir", "runs/one"])
print(json.dumps(codes))
"""
"""All of them in one process, because most of a short run's time is the import of torch."""


def project(projects: Path, kind: str) -> Path:
    return projects / f"areal-plugin-my-{kind}"


@pytest.fixture(scope="module")
def projects(tmp_path_factory) -> Path:
    """A project of every kind, far from this repository."""
    folder = tmp_path_factory.mktemp("strangers")
    for kind in KINDS:
        assert cli.main(["plugins", "new", f"my-{kind}", "--kind", kind, "--dir", str(folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def environment(fresh, projects, tmp_path_factory):
    """All of them, installed."""
    made, wheels = fresh(), tmp_path_factory.mktemp("built")
    built = made.run("-c", BUILD, str(wheels), *(str(project(projects, kind)) for kind in KINDS))
    assert built.returncode == 0, built.stderr
    made.install(*sorted(wheels.glob("*.whl")))
    return made


@pytest.fixture(scope="module")
def outcomes(environment, projects) -> dict[str, Counter[str]]:
    """What became of the generated tests, by kind."""
    report, folders = projects / "report.xml", [str(project(projects, kind)) for kind in KINDS]
    fixtures = [] if entry_points(group="pytest11", name="areal") else ["-p", "areal_plugins.testing.pytest_plugin"]
    options = ["-q", "-p", "no:cacheprovider", "--import-mode=importlib", f"--junit-xml={report}", *fixtures]
    done = environment.run("-m", "pytest", *options, *folders, cwd=projects)
    assert report.exists(), done.stdout + done.stderr
    found = {kind: Counter[str]() for kind in KINDS}
    for case in ElementTree.parse(report).iter("testcase"):
        (kind,) = re.findall(r"\btests\.test_(\w+)", f"{case.get('classname')}.{case.get('name')}")
        found[kind][next((child.tag for child in case if child.tag in ("failure", "error", "skipped")), "passed")] += 1
    return found


@pytest.fixture(scope="module")
def runs(environment, projects) -> dict[str, int]:
    """The exit codes of the examples, by folder."""
    done = environment.run("-c", RUN, *(str(project(projects, kind)) for kind in KINDS), cwd=projects)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_every_wheel_is_a_ready_plugin_with_its_component(environment):
    inventory = environment.data("plugins", "list")
    ready = {plugin["name"] for plugin in inventory["plugins"] if plugin["state"] == "ready" and not plugin["warnings"]}
    components = {f"{c['kind']}/{c['name']}" for c in inventory["components"] if c["state"] == "ready"}
    assert {f"my-{kind}" for kind in KINDS} <= ready
    assert {f"{kind}/my-{kind}" for kind in KINDS} <= components


@every_kind
def test_its_tests_pass_as_generated(outcomes, kind):
    assert outcomes[kind]["passed"] > 12
    assert not outcomes[kind]["failure"] + outcomes[kind]["error"]


@every_kind
def test_its_example_runs_to_the_end_with_it(runs, projects, kind):
    folder = project(projects, kind)
    assert runs[str(folder)] == 0
    provenance = json.loads((folder / "runs/one/provenance.json").read_text())
    assert f"my-{kind}" in {plugin["name"] for plugin in provenance["plugins"]}
    assert f"my{'_' if kind == 'parallelism' else '-'}{kind}" in (folder / "runs/one/spec.yaml").read_text()


def test_they_are_used_from_where_pip_put_them(environment, projects):
    done = environment.run("-c", "import areal_plugin_my_reward as m; print(m.__file__)", cwd=projects)
    assert Path(done.stdout.strip()).is_relative_to(environment.packages)
    assert not projects.is_relative_to(Path(__file__).parents[2])
