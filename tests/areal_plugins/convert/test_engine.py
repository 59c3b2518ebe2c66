"""No key is dropped in silence, and what is written is a spec."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from areal_core.errors import SpecError
from areal_core.spec import examine
from areal_plugins.convert import FRAMEWORKS, Facts, convert, framework
from areal_plugins.convert.theirs import read

_found = importlib.util.spec_from_file_location("configs", Path(__file__).with_name("configs.py"))
configs = importlib.util.module_from_spec(_found)
_found.loader.exec_module(configs)

every_framework = pytest.mark.parametrize("name", FRAMEWORKS)
every_config = pytest.mark.parametrize(
    ("name", "text"), [*configs.CONFIGS.items(), ("verl", configs.LAUNCH)], ids=[*configs.CONFIGS, "launch"]
)


@pytest.fixture
def converted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def of(name: str, text: str, **facts):
        Path("theirs.yaml").write_text(text)
        return convert(name, "theirs.yaml", Facts(**facts))

    return of


def leaf_keys(name: str, text: str) -> set[str]:
    Path("theirs.yaml").write_text(text)
    return set(read("theirs.yaml", framework(name).defaults, Facts()).values)


@every_config
def test_every_key_of_theirs_is_in_the_spec_and_in_the_report(converted, name, text):
    conversion = converted(name, text)
    keys = leaf_keys(name, text)
    assert len(keys) > 5
    assert keys <= {key for entry in conversion.entries for key in entry.keys}
    words = " ".join(conversion.text.split())
    assert [key for key in keys if key not in words] == []


@every_config
def test_the_spec_has_no_error_whether_the_number_of_tasks_is_known_or_not(converted, name, text):
    for facts in ({}, {"tasks": 1000, "processes": 4}):
        Path("spec.yaml").write_text(converted(name, text, **facts).text)
        assert examine("spec.yaml").errors == ()


@every_config
def test_no_key_of_the_test_configs_is_unknown(converted, name, text):
    assert converted(name, text).of("unknown") == ()


@every_config
def test_no_place_here_has_two_values(converted, name, text):
    places = [entry.to for entry in converted(name, text).entries if entry.fate in ("carried", "default")]
    assert len(places) == len(set(places))


@every_framework
def test_an_unknown_key_is_reported_with_its_line_and_a_suggestion(converted, name):
    wrong = {"areal": "sed: 1", "trl": "learning_rte: 1", "verl": "trainer.experimnt_name: x"}[name]
    conversion = converted(name, f"{configs.CONFIGS[name]}{wrong}\n")
    (entry,) = conversion.of("unknown")
    assert entry.line == configs.CONFIGS[name].count("\n") + 1
    assert "did you mean `" in entry.note
    assert f"# UNKNOWN {wrong.partition(':')[0]}: " in conversion.text


@every_framework
def test_a_config_that_says_nothing_still_means_the_frameworks_defaults(converted, name):
    conversion = converted(name, "seed: 1\n" if name != "verl" else "trainer: {nnodes: 1}\n")
    assert len(conversion.of("default")) > 5
    assert "default of" in conversion.text


@every_framework
def test_secrets_are_in_no_comment(converted, name):
    conversion = converted(name, configs.CONFIGS[name])
    assert "secret" not in conversion.text
    assert "secret" not in repr(conversion.as_data())


@every_framework
def test_a_file_that_cannot_be_read_is_a_finding(converted, name):
    with pytest.raises(SpecError, match="yaml-syntax"):
        converted(name, "a: [1\n")
    with pytest.raises(SpecError, match="no-such-file"):
        convert(name, "gone.yaml")


@every_framework
def test_every_rule_leads_to_a_place_that_a_spec_has(name):
    from areal_core.spec.model import Spec

    sections = {field.name for field in Spec.__attrs_attrs__}
    assert {rule.to.partition(".")[0] for rule in framework(name).rules} <= sections


@every_framework
def test_no_key_has_two_rules_for_one_place(name):
    rules = [(rule.keys[0], rule.to) for rule in framework(name).rules]
    assert sorted(rules) == sorted(set(rules))


@every_framework
def test_every_default_of_theirs_is_read_by_a_rule(name):
    table = framework(name)
    assert set(table.defaults) <= {key for rule in table.rules for key in rule.keys}


@pytest.mark.parametrize(
    ("name", "text", "key"),
    [
        ("trl", "top_k: abc", "top_k"),
        ("trl", "report_to: 5", "report_to"),
        ("trl", "reward_funcs: [1]", "reward_funcs"),
        ("trl", "num_generations: 0\nmax_steps: '5x'", "max_steps"),
        ("trl", "per_device_train_batch_size: ${oc.env:N}", "per_device_train_batch_size"),
        ("verl", "trainer: {nnodes: two}", "trainer.nnodes"),
        ("areal", "gconfig: {n_samples: many}", "gconfig.n_samples"),
    ],
)
def test_a_value_that_cannot_be_reckoned_with_is_lost_alone(converted, name, text, key):
    conversion = converted(name, text)
    assert key in {key for entry in conversion.of("lost") for key in entry.keys}
    assert conversion.of("default")
