"""Platforms count devices without any driver's library, and hand each worker its own."""

from __future__ import annotations

import os

import pytest

from areal_plugins.builtin.platforms.cpu import Cpu
from areal_plugins.builtin.platforms.cuda import Cuda
from areal_plugins.protocols import Place


@pytest.fixture
def three_gpus(tmp_path, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for name in ("nvidia0", "nvidia1", "nvidia2", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    return Cuda(tmp_path)


def test_a_processor_counts_its_cores_and_lacks_nothing():
    assert Cpu().count() == os.cpu_count()
    assert Cpu().missing() is None


def test_a_cpu_worker_gets_thread_pools_of_its_size():
    assert set(Cpu().environment(Place(threads=3)).values()) == {"3"}


def test_gpus_are_counted_by_device_file(three_gpus):
    assert three_gpus.count() == 3
    assert three_gpus.missing() is None


def test_hidden_gpus_do_not_count(three_gpus, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    assert three_gpus.count() == 1
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert three_gpus.count() == 0
    assert "hides" in three_gpus.missing()


def test_a_machine_without_gpus_says_what_it_lacks(tmp_path, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert "driver" in Cuda(tmp_path).missing()


def test_a_gpu_worker_sees_its_own_devices_only(three_gpus):
    assert three_gpus.environment(Place(devices=(1, 2))) == {"CUDA_VISIBLE_DEVICES": "1,2"}


def test_indices_count_among_the_visible_devices(three_gpus, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    assert three_gpus.environment(Place(devices=(1,))) == {"CUDA_VISIBLE_DEVICES": "7"}
