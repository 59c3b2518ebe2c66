"""Which platform and transport `auto` stands for, and why."""

from __future__ import annotations

import pytest

from areal_core import descriptors as d
from areal_core.errors import Severity


def platform(name: str, factory: str, priority: int, **more):
    return d.PlatformDescriptor(
        name=name,
        summary="x",
        factory=f"areal_spec_fakes:{factory}",
        capabilities=d.PlatformCapabilities(device=name, priority=priority),
        **more,
    )


def transport(name: str, **capabilities):
    return d.TransportDescriptor(
        name=name,
        summary="x",
        factory="areal_spec_fakes:make",
        capabilities=d.TransportCapabilities(**capabilities),
    )


def engine(name: str, *accepts: str):
    return d.EngineDescriptor(
        name=name,
        summary="x",
        factory="areal_spec_fakes:make",
        capabilities=d.EngineCapabilities(accepts=accepts),
    )


def chosen(experiment) -> tuple[str, str]:
    stage = experiment.stages[0]
    return stage.transport.name, stage.mechanism


def test_auto_takes_the_best_platform_that_is_present(build, extended):
    assert build().stages[0].platform.name == "cpu"
    assert build(manager=extended(platform("gpu", "eight", 5))).stages[0].platform.name == "gpu"


def test_the_reason_names_what_was_passed_over(check, complete):
    assert check(complete).platform.reason == "cuda: no driver; cpu is the best that is present"


def test_a_platform_whose_requirements_are_unmet_is_passed_over(check, complete, extended):
    manager = extended(platform("gpu", "eight", 5, requires=("areal-no-such-thing",)))
    examined = check(complete, manager=manager)
    assert examined.platform.part.name == "cpu"
    assert "gpu: areal-no-such-thing is not installed" in examined.platform.reason


def test_a_platform_that_cannot_be_asked_is_passed_over(check, complete, extended):
    examined = check(complete, manager=extended(platform("gpu", "gone", 5)))
    assert examined.platform.part.name == "cpu"
    assert "gpu: it cannot be asked" in examined.platform.reason


def test_a_named_platform_that_is_not_there_is_unavailable(check, complete):
    (finding,) = check(complete + "platform: cuda\n").findings
    assert (finding.code, finding.severity) == ("missing-device", Severity.UNAVAILABLE)
    assert (finding.message, str(finding.location)) == ("platform cuda: no driver", "spec.yaml:5:11")


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        ("{train: {num_gpus: 8}, infer: {num_gpus: 1}}", "takes 9 gpu devices"),
        ("{train: {num_gpus: 4}, infer: {num_gpus: 4}}", ""),
    ],
)
def test_too_few_devices_are_unavailable(check, complete, extended, resources, message):
    examined = check(complete + f"resources: {resources}\n", manager=extended(platform("gpu", "eight", 5)))
    assert [message in f.message for f in examined.findings] == ([True] if message else [])


def test_processes_share_the_cores_of_a_cpu(build):
    assert build("resources: {train: {num_gpus: 64}}").stages[0].spec.resources.train.devices == 64


def test_between_processes_the_shortest_way_is_shared_memory(build):
    assert chosen(build()) == ("shm", "tensors")


def test_within_one_process_weights_are_handed_over(build):
    assert chosen(build("executor: inline")) == ("memory", "tensors")


def test_between_machines_only_a_network_transport_reaches(check, complete, extended):
    text = complete + "executor: cluster\n"
    examined = check(text, manager=extended(transport("rdma", offers=("hf-dir",), scope="network")))
    assert (examined.transport.part.name, examined.transport.mechanism) == ("net", "tensors")
    assert "not shm: it stays on one machine" in examined.transport.reason


def test_a_stranger_meets_by_its_mechanism(build, extended):
    manager = extended(transport("odd", offers=("hf-dir",)), engine("loader", "hf-dir"))
    assert chosen(build("inference: loader", manager=manager)) == ("disk", "hf-dir")


def test_the_engines_favourite_mechanism_wins_at_equal_reach(build, extended):
    manager = extended(engine("loader", "hf-dir", "tensors"))
    assert chosen(build("inference: loader", manager=manager)) == ("disk", "hf-dir")


def test_a_named_transport_uses_the_engines_favourite_of_what_all_know(build, extended):
    manager = extended(transport("both", offers=("hf-dir", "tensors")))
    assert chosen(build("weights: both", manager=manager)) == ("both", "tensors")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("weights: memory", "transport-out-of-reach"),
        ("executor: cluster\nweights: shm", "transport-out-of-reach"),
        ("executor: inline\nweights: net", "transport-out-of-reach"),
        ("inference: stranger\nweights: shm", "no-mechanism"),
    ],
)
def test_a_named_transport_that_cannot_serve_is_an_error(errors, complete, text, code):
    assert [entry.split()[0] for entry in errors(complete + text)] == [code]


def test_nothing_installed_that_fits_is_unavailable(check, complete):
    (finding,) = check(complete + "inference: stranger").findings
    assert (finding.code, finding.severity) == ("no-mechanism", Severity.UNAVAILABLE)
    assert "not shm: it shares no mechanism with both ends" in finding.message


def test_a_component_of_another_platform_is_refused_when_the_platform_is_named(check, complete, extended):
    manager = extended(
        d.RewardDescriptor(name="ours", summary="x", factory="areal_spec_fakes:make", platforms=("npu",))
    )
    text = complete.replace("gsm8k", "gsm8k, reward: ours")
    for more, severity in (("", Severity.UNAVAILABLE), ("platform: cpu\n", Severity.ERROR)):
        (finding,) = check(text + more, manager=manager).findings
        assert (finding.code, finding.severity) == ("wrong-platform", severity)


def test_an_unmet_requirement_of_a_component_is_unavailable_with_its_pip_line(check, complete, extended):
    manager = extended(
        d.RewardDescriptor(name="ours", summary="x", factory="areal_spec_fakes:make", requires=("areal-none>=3",))
    )
    (finding,) = check(complete.replace("gsm8k", "gsm8k, reward: ours"), manager=manager).findings
    assert (finding.code, finding.hint) == ("not-installed", "pip install 'areal-none>=3'")
