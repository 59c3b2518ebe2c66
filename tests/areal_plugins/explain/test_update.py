"""What a weight update moves."""

from __future__ import annotations


def test_the_bytes_of_a_version_and_the_mechanism(explained):
    data = explained("resources.infer={num_gpus: 2, parallel: dp}")
    update = data["update"]
    assert update["bytes"] == 4 * data["memory"]["parameters"]
    assert (update["engines"], update["transport"], update["mechanism"]) == (2, "shm", "tensors")
    assert (update["scope"], update["collective"], update["verified"]) == ("host", False, True)


def test_what_cannot_be_known_is_none(explained):
    update = explained("weights=xccl", "model={type: hf, path: org/name}")["update"]
    assert (update["transport"], update["mechanism"], update["bytes"]) == ("xccl", None, None)
