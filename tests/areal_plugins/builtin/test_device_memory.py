from __future__ import annotations

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from areal_plugins.builtin import device_memory  # noqa: E402  (needs torch)


def test_what_torch_keeps_for_later_is_not_in_use(monkeypatch):
    backend = SimpleNamespace(
        mem_get_info=lambda device: (10, 100), memory_reserved=lambda device: 50, memory_allocated=lambda device: 30
    )
    monkeypatch.setattr(torch, "npu", backend, raising=False)
    assert device_memory.share(SimpleNamespace(type="npu")) == pytest.approx(0.7)


def test_the_processors_memory_is_not_torchs_to_know():
    assert device_memory.share(torch.device("cpu")) is None
    device_memory.empty_cache(torch.device("cpu"))
