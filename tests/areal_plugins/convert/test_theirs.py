"""How configs of others are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from areal_core.errors import InputError, SpecError
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


def test_a_value_that_cannot_be_read_is_an_error(values):
    with pytest.raises(SpecError, match="octal"):
        values("a: 0123\n")


def test_references_that_double_each_other_are_refused(values):
    text = "a0: xxxxxxxxxx\n" + "".join(f"a{n}: {f'${{a{n - 1}}}' * 4}\n" for n in range(1, 14))
    with pytest.raises(InputError, match="bring in more than"):
        values(text)


def test_a_reference_that_leads_back_stays_as_it_is_written(values):
    assert values("a: ${b}${b}\nb: ${a}${a}\n").values["a"] == "${a}${a}" * 2


def test_a_long_chain_of_references_stays_as_it_is_written(values):
    chain = values("".join(f"a{n}: ${{a{n - 1}}}\n" for n in range(3000, 0, -1)) + "a0: x\n").values
    assert chain["a3000"].startswith("${a")


def test_many_empty_lines_are_read_in_no_time(values):
    assert values("a: 1" + "\n" * 200_000).values == {"a": 1}


def test_a_command_within_yaml_makes_it_no_launch_script(values):
    assert values("a: |\n  x=1\nb: 2\n").values == {"a": "x=1\n", "b": 2}


def test_a_quoted_number_is_one_where_their_default_is(values):
    read_ = values("a: '4'\nb: '4'\nc: 'true'\n", a=1, b="x", c=1)
    assert read_.values == {"a": 4, "b": "4", "c": "true"}


def test_a_text_where_a_number_is_due_is_not_repeated(values):
    given = values("a: ${oc.env:N}\n", a=1)["a"]
    for reckon in (lambda: given * 2, lambda: 2 * given):
        with pytest.raises(TypeError, match="no number"):
            reckon()


def test_defaults_of_a_shells_variables_are_kept(values):
    assert values("python -m x a=${D:-/data}/b c=$E\n").values == {"a": "${env:D:-/data}/b", "c": "${env:E}"}


def test_secrets_among_the_other_words_of_a_script_are_masked(values):
    words = values('curl -H "Authorization: Bearer abc" --token abc --api-key=abc\npython -m x a=1\n').words
    assert "abc" not in " ".join(words)
    assert words[:3] == ("curl", "-H", "Authorization: ***")
