"""How configs of others are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from areal_plugins.convert.theirs import Facts, read


@pytest.fixture
def values(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def of(text: str, **defaults):
        Path("theirs.yaml").write_text(text)
        return read("theirs.yaml", defaults, Facts())

    return of


def test_sections_and_dotted_keys_are_the_same(values):
    assert values("a: {b: 1}\nc.d: 2\n").values == {"a.b": 1, "c.d": 2}


def test_a_list_of_plain_values_is_one_and_mappings_in_a_list_are_numbered(values):
    assert values("a: [1, 2]\nb: [{c: 3}, {c: 4}]\nd: {}\n").values == {"a": [1, 2], "b.0.c": 3, "b.1.c": 4, "d": {}}


def test_plain_words_of_yaml_1_1_are_switches_and_quoted_ones_texts(values):
    assert values("a: no\nb: 'no'\nc: On\n").values == {"a": False, "b": "no", "c": True}


def test_references_are_followed(values):
    text = "a: 1\nb: ${a}\nc: {d: x, e: '${.d}/${b}'}\nf: ${c.e}\n"
    assert values(text).values == {"a": 1, "b": 1, "c.d": "x", "c.e": "x/1", "f": "x/1"}


def test_a_reference_finds_the_frameworks_default_and_its_own(values):
    assert values("a: ${n}\nb: '${oc.select:gone,5}'\nc: '${oc.select:n,5}'\n", n=3).values == {"a": 3, "b": 5, "c": 3}


def test_an_environment_variable_is_named_as_here(values):
    text = "a: ${oc.env:HOME}\nb: '${oc.env:MODELS,/models}/x'\n"
    assert values(text).values == {"a": "${env:HOME}", "b": "${env:MODELS:-/models}/x"}


def test_what_leads_nowhere_and_circles_stay_as_they_are(values):
    found = values("a: ${gone}\nb: ${c}\nc: ${b}\n").values
    assert found["a"] == "${gone}"
    assert found["b"].startswith("${")


def test_a_launch_script_is_read_by_its_overrides(values):
    text = "set -x  # quiet\npython -m main \\\n  a.b=1 \\\n  +c='[1, \"x\"]' \\\n  ++d=$HOME/y e=\n"
    found = values(text)
    assert found.values == {"a.b": 1, "c": [1, "x"], "d": "${env:HOME}/y", "e": None}
    assert found.lines == {"a.b": 3, "c": 4, "d": 5, "e": 5}
    assert found.words == ("set", "-x", "python", "-m", "main")


def test_null_and_absence_take_the_frameworks_default(values):
    found = values("a: null\n", a=1, b=2)
    assert (found["a"], found["b"], found["c"]) == (1, 2, None)
