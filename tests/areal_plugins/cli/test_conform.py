"""`plugins check`, on local plugins whose kind has the rules for every kind alone."""

import json

import pytest

from areal_plugins.cli import conform, main
from areal_plugins.testing import conformance

PLUGIN = """
from attrs import field, frozen
from areal_plugins import RewardDescriptor, hookimpl

@frozen
class Options:
    least: int = field({default}metadata={{"doc": "Fewest words."}})

@hookimpl
def areal_rewards():
    return [
        RewardDescriptor(name="good", summary="a good one", factory=f"{{__name__}}:make", options=Options),
        RewardDescriptor(name="odd", summary="", factory=f"{{__name__}}:make"),
    ]

def make(options, context):
    pass
"""


@pytest.fixture(autouse=True)
def _shared_rules(monkeypatch):
    monkeypatch.setitem(conformance.CLASSES, "reward", "areal_plugins.testing.conformance.base:Conformance")


@pytest.fixture
def check(tmp_path, capsys):
    def check(name, *more, default="default=1, "):
        file = tmp_path / "words.py"
        file.write_text(PLUGIN.format(default=default))
        code = main(["plugins", "check", name, "--plugin", str(file), *more])
        return code, *capsys.readouterr()

    return check


def test_a_component_that_keeps_its_rules_is_a_table_of_passes(check):
    code, out, err = check("reward/good")
    assert (code, err) == (0, "")
    first, *rules, last = out.splitlines()
    assert first.startswith("reward/good (")
    assert first.endswith("words.py)")
    assert rules[0].split() == ["descriptor", "is", "of", "its", "kind", "passed"]
    assert last == f"  {len(rules)} passed"


def test_a_rule_that_is_broken_is_named_with_its_cause_and_exits_1(check):
    code, out, _ = check("odd")
    assert code == 1
    assert "summary says what it is        failed   its summary is empty" in out
    assert "passed, 1 failed" in out.splitlines()[-1]


def test_a_plugin_means_all_of_its_components(check):
    code, out, _ = check("words")
    assert code == 1
    assert [line.split()[0] for line in out.splitlines() if line.startswith("reward/")] == ["reward/good", "reward/odd"]


def test_json_lists_every_rule(check):
    code, out, _ = check("odd", "--json")
    failed = [entry for entry in json.loads(out) if entry["result"] == "failed"]
    assert (code, failed) == (
        1,
        [
            {
                "component": "reward/odd",
                "rule": "summary says what it is",
                "test": "test_summary_says_what_it_is",
                "parameters": "",
                "result": "failed",
                "cause": "its summary is empty",
            }
        ],
    )


@pytest.mark.parametrize(
    ("name", "more", "message"),
    [
        ("reward/god", [], r"no reward is called 'god' (did you mean `good`?)"),
        ("god", [], "no component or plugin has this name (did you mean `good`?)"),
        ("nothing-like-it", [], "see areal-plugins plugins list"),
        ("good", ["--option", "least"], "'least' is not KEY=VALUE"),
        ("good", ["--option", "most=1"], "most"),
        ("good", ["--option", "least=[1"], "the value of least is no YAML"),
        ("good", ["--option", "least=two"], "expected int @ options.least"),
    ],
)
def test_bad_input_says_so_and_exits_2(name, more, message, check):
    code, out, err = check(name, *more)
    assert (code, out) == (2, "")
    assert message in err


def test_an_option_without_a_default_must_be_given(check):
    code, _, err = check("good", default="")
    assert code == 2
    assert "least" in err
    assert "--option KEY=VALUE" in err
    assert check("good", "--option", "least=3", default="")[0] == 0


def test_without_pytest_the_way_to_get_it_is_said(check, monkeypatch):
    monkeypatch.setattr(conform, "find_spec", lambda name: None)
    code, _, err = check("good")
    assert code == 2
    assert "pip install 'areal-plugins[testing]'" in err
