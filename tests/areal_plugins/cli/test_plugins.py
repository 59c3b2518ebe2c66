"""`plugins show` says all that is known, and `plugins new` refuses what cannot be a plugin."""

from __future__ import annotations

import json

import pytest

from areal_core.hookspecs import COMPONENT_HOOKS
from areal_plugins import cli
from areal_plugins.scaffold import Names, render


def shown(capsys, *argv: str) -> str:
    assert cli.main(["plugins", *argv]) == 0
    return capsys.readouterr().out


def refused(capsys, *argv: str) -> str:
    assert cli.main(["plugins", *argv]) == 2
    return capsys.readouterr().err


# --- show --------------------------------------------------------------------------------------------------


def test_show_gives_options_with_types_bounds_defaults_and_documentation(capsys):
    text = shown(capsys, "show", "reward/math")
    assert "timeout: a number, more than 0 (default 5.0)\n      Seconds one verification may take" in text
    assert "on_timeout: `zero` or `error` (default zero)" in text


def test_show_gives_origin_capabilities_requirements_and_state(capsys):
    text = shown(capsys, "show", "engine/torch")
    assert "from          areal-plugins 0." in text
    assert "state         " in text
    assert "requires      torch>=" in text
    assert "    accepts: [tensors, hf-dir]\n    interruptible: true" in text


def test_show_as_json_has_the_same(capsys):
    (component,) = json.loads(shown(capsys, "show", "reward/math", "--json"))["components"]
    (timeout,) = [option for option in component["options"] if option["name"] == "timeout"]
    assert (timeout["type"], timeout["default"], timeout["bounds"]) == ("a number", 5.0, {"gt": 0})
    assert {"distribution", "version", "state", "cause", "way_out", "api_version", "capabilities"} <= set(component)


def test_a_name_of_several_kinds_shows_them_all_and_an_address_one(capsys):
    both = json.loads(shown(capsys, "show", "torch", "--json"))["components"]
    assert {component["kind"] for component in both} == {"engine", "trainer"}


def test_show_of_a_plugin_lists_its_components(capsys):
    assert "  component     reward/exact" in shown(capsys, "show", "builtin")


def test_a_name_that_does_not_exist_gets_the_nearest(capsys):
    assert "did you mean `exact`?" in refused(capsys, "show", "reward/exat")


def test_options_that_cannot_be_imported_are_their_components_fault_alone(capsys, tmp_path):
    (tmp_path / "mine.py").write_text(
        "from areal_plugins import RewardDescriptor, hookimpl\n"
        "@hookimpl\ndef areal_rewards():\n"
        "    return [RewardDescriptor(name='mine', summary='', factory='a:b', options='no_such_module:Options')]\n"
    )
    found = json.loads(shown(capsys, "list", "--json", "--plugin", str(tmp_path / "mine.py")))["components"]
    states = {component["name"]: component["state"] for component in found if component["kind"] == "reward"}
    assert (states["mine"], states["exact"]) == ("import failed", "ready")
    assert "No module named 'no_such_module'" in next(c["cause"] for c in found if c["name"] == "mine")


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        ("class Options: pass", "are no attrs class"),
        ("@attrs.frozen\nclass Options:\n    n: 'Elsewhere' = 0", "cannot be resolved: NameError: name 'Elsewhere'"),
    ],
)
def test_options_that_cannot_be_read_are_their_components_fault_alone(capsys, tmp_path, options, cause):
    file = tmp_path / "mine.py"
    file.write_text(
        f"import attrs\nfrom areal_plugins import RewardDescriptor, hookimpl\n{options}\n"
        "@hookimpl\ndef areal_rewards():\n"
        "    return [RewardDescriptor(name='mine', summary='', factory='a:b', options=Options)]\n"
    )
    found = json.loads(shown(capsys, "list", "--json", "--plugin", str(file)))["components"]
    assert cause in next(c["cause"] for c in found if c["name"] == "mine")
    assert next(c["state"] for c in found if c["name"] == "exact") == "ready"
    assert cause in shown(capsys, "show", "reward/mine", "--plugin", str(file))


# --- new ---------------------------------------------------------------------------------------------------


def test_new_writes_a_whole_project_and_says_what_to_do_next(capsys, tmp_path):
    text = shown(capsys, "new", "word-count", "--kind", "reward", "--dir", str(tmp_path))
    folder = tmp_path / "areal-plugin-word-count"
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert files == {
        ".github/workflows/ci.yml",
        ".gitignore",
        "README.md",
        "areal_plugin_word_count/__init__.py",
        "areal_plugin_word_count/reward.py",
        "example.yaml",
        "pyproject.toml",
        "tests/test_reward.py",
        "tox.ini",
    }
    assert all(str(folder / file) in text for file in files)
    assert f"cd {folder}" in text


def test_new_as_json_lists_the_files(capsys, tmp_path):
    data = json.loads(shown(capsys, "new", "mine", "--kind", "engine", "--dir", str(tmp_path), "--json"))
    assert data["distribution"] == "areal-plugin-mine"
    assert "areal_plugin_mine/engine.py" in data["files"]


@pytest.mark.parametrize("kind", COMPONENT_HOOKS)
def test_nothing_is_left_to_fill_in(kind):
    project = render(Names(kind, "my-own"))
    for path, text in project.items():
        assert "$" not in text.replace("${{ matrix.python }}", "")
        if path.endswith(".py"):
            compile(text, path, "exec")
    assert "api_version=1" in project["areal_plugin_my_own/__init__.py"]


def test_a_projects_dependency_starts_at_this_release_and_ends_before_the_next_major_one():
    assert Names("reward", "mine").values()["dependency"] == "areal-plugins>=0.1.0,<1"


@pytest.mark.parametrize(
    ("name", "kind", "problem", "way_out"),
    [
        ("WordCount", "reward", "made of small letters", "try `word-count`"),
        ("word_count", "reward", "made of small letters", "try `word-count`"),
        ("7", "reward", "made of small letters", "such as `word-count`"),
        ("../x", "reward", "made of small letters", "try `x`"),
        ("areal-plugins-x", "reward", "the prefix is added", "try `x`"),
        ("x", "rewards", "no such kind", "did you mean `reward`?"),
        ("x", "areal_inference_engines", "no such kind", "did you mean `engine`?"),
        ("x", "backend", "no such kind", "did you mean `trainer`?"),
        ("x", "zzz", "no such kind", "kinds are platform, model"),
        ("exact", "reward", "offers reward/exact already", "choose another name"),
        ("vllm", "engine", "areal-plugins-vllm offers engine/vllm already", "choose another name"),
    ],
)
def test_a_bad_name_or_kind_is_refused_with_what_to_write_instead(capsys, tmp_path, name, kind, problem, way_out):
    message = refused(capsys, "new", name, "--kind", kind, "--dir", str(tmp_path))
    assert problem in message
    assert way_out in message
    assert not list(tmp_path.iterdir())


def test_a_directory_that_exists_is_not_touched(capsys, tmp_path):
    (tmp_path / "areal-plugin-mine").mkdir()
    assert "exists already" in refused(capsys, "new", "mine", "--kind", "reward", "--dir", str(tmp_path))
    assert not list((tmp_path / "areal-plugin-mine").iterdir())


def test_a_place_that_cannot_be_written_is_bad_input(capsys, tmp_path):
    (tmp_path / "file").write_text("")
    assert "cannot be written" in refused(capsys, "new", "mine", "--kind", "reward", "--dir", str(tmp_path / "file"))


@pytest.mark.parametrize(
    ("name", "problem"), [("a" * 300, "64 characters"), ("true", "`true-reward`"), ("null", "no text")]
)
def test_a_name_that_no_file_or_spec_can_bear_is_refused(tmp_path, capsys, name, problem):
    assert cli.main(["plugins", "new", name, "--kind", "reward", "--dir", str(tmp_path)]) == 2
    assert problem in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_link_where_the_project_would_stand_is_not_followed(tmp_path, capsys):
    (tmp_path / "areal-plugin-mine").symlink_to("elsewhere")
    assert cli.main(["plugins", "new", "mine", "--kind", "reward", "--dir", str(tmp_path)]) == 2
    assert "exists already" in capsys.readouterr().err
    assert not (tmp_path / "elsewhere").exists()
