"""The built-in transports keep the rules for transports, and each rule catches one that breaks it."""

from pathlib import Path

import pytest

from areal_core.local import load_file
from areal_plugins.testing.conformance import Case, TransportConformance
from areal_plugins.testing.conformance.running import run

PLAIN = Path(__file__).with_name("plain_transport.py")
plain = load_file(PLAIN)


class TestBuiltin(TransportConformance):
    @pytest.fixture(params=["memory", "shm", "disk"])
    def component(self, request):
        return f"transport/{request.param}"


PROCESSES = {
    "test_an_engine_in_another_process_gets_every_version",
    "test_a_killed_trainer_is_noticed",
    "test_its_scope_is_honest",
}
BREAKS = {
    "Rounds": {"test_every_dtype_arrives", "test_many_tensors_arrive_in_their_order"},
    "Flattens": {"test_every_shape_arrives"},
    "CutsBuckets": {"test_every_shape_arrives"},
    "Sorts": {"test_many_tensors_arrive_in_their_order"},
    "IgnoresStrides": {"test_strides_do_not_matter"},
    "DropsTies": {"test_tied_weights_arrive_under_both_names"},
    "LosesFiles": {"test_a_directory_arrives_whole"},
    "Flat": {"test_the_offer_says_what_it_is"},
    "FirstShapes": {"test_versions_follow_each_other"},
    "OneShelf": {"test_a_version_stays_while_the_next_is_published"},
    "Lazy": {"test_a_published_version_does_not_follow_the_trainer"},
    "Once": {"test_several_engines_get_one_version"},
    "Litters": {"test_weights_that_stop_coming_leave_no_version"},
    "Trusts": {"test_damaged_bytes_are_found"},
    "Substitutes": {"test_a_released_version_is_gone"},
    "Crashes": {"test_a_version_of_a_closed_trainer_is_gone"},
    "TakesAnything": {"test_an_offer_of_another_transport_is_refused"},
    "Strict": {"test_releasing_an_unknown_version_is_no_error"},
    "Hoards": {"test_release_frees"},
    "LeavesFile": {"test_close_leaves_nothing"},
    "LeavesSocket": {"test_close_leaves_nothing"},
    "OneProcess": {"test_an_engine_in_another_process_gets_every_version"},
    "Mourns": {"test_a_killed_trainer_is_noticed"},
    "Narrow": {"test_its_scope_is_honest"},
}
RULES = [name for name in vars(TransportConformance) if name.startswith("test_")]


def failed(name, only, scope="host"):
    case = Case(plain.descriptor(getattr(plain, name), scope), files=(str(PLAIN),))
    return {r.test: r.cause for r in run(TransportConformance, case, only=only) if r.outcome == "failed"}


def test_a_transport_of_another_make_keeps_every_rule():
    assert failed("PlainTransport", RULES) == {}


def test_every_rule_is_broken_by_some_transport():
    assert set.union(*BREAKS.values()) == set(RULES)


@pytest.mark.parametrize("name", [name for name, rules in BREAKS.items() if not rules & PROCESSES])
def test_a_transport_that_breaks_a_promise_fails_its_rule_alone(name):
    found = failed(name, [rule for rule in RULES if rule not in PROCESSES])
    assert set(found) == BREAKS[name], found


@pytest.mark.parametrize(("name", "scope"), [("OneProcess", "host"), ("Mourns", "host"), ("Narrow", "process")])
def test_a_transport_that_fails_between_processes_is_caught(name, scope):
    found = failed(name, sorted(PROCESSES), scope)
    assert set(found) == BREAKS[name], found
