from typing import Any

import pytest
from attrs import evolve

from areal_core.spec.model import EvaluationSpec, Spec
from areal_plugins import CheckContext, Severity
from areal_plugins.builtin.environments import check
from areal_plugins.builtin.environments.options import Gsm8kOptions

QUIET = {"before": False, "after": False}


def codes(options: Gsm8kOptions, **evaluation: Any) -> list[str]:
    spec = evolve(Spec(), evaluation=EvaluationSpec(**evaluation))
    return [finding.code for finding in check.gsm8k(CheckContext(spec, options, ("environments", 0)))]


def test_an_evaluation_needs_held_out_tasks() -> None:
    assert codes(Gsm8kOptions(path="a")) == ["no-test-tasks"]


@pytest.mark.parametrize("options", [{"test_path": "b"}, {"test_fraction": 0.1}])
def test_either_way_to_hold_out_is_enough(options: dict[str, Any]) -> None:
    assert codes(Gsm8kOptions(path="a", **options)) == []


def test_without_evaluation_nothing_needs_to_be_held_out() -> None:
    assert codes(Gsm8kOptions(path="a"), **QUIET) == []


def test_an_evaluation_on_another_split_needs_nothing_held_out() -> None:
    assert codes(Gsm8kOptions(path="a"), split="train") == []


def test_the_same_file_holds_nothing_out() -> None:
    assert codes(Gsm8kOptions(path="a", test_path="a")) == ["same-file"]


def test_missing_data_is_a_lack_of_this_machine() -> None:
    context = CheckContext(Spec(), Gsm8kOptions(), ("environments", 0))
    assert [(f.code, f.severity) for f in check.gsm8k(context)] == [("no-data", Severity.UNAVAILABLE)]
