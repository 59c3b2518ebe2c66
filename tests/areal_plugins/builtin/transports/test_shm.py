from __future__ import annotations

import errno
import importlib
import mmap
import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from areal_core.contexts import Place, TransportContext
from areal_core.data import WeightOffer, WeightVersion
from areal_plugins import InputError, TransportError
from areal_plugins.builtin.transports import ShmOptions
from areal_plugins.builtin.transports.shm import ShmTransport

Make = Callable[..., Any]
Start = Callable[[str], tuple[Any, Connection]]
V1, V2 = WeightVersion(0, 1), WeightVersion(0, 2)


def refuse(directory: Path) -> None:
    raise AssertionError("shm needs no directory")


def publish(trainer: ShmTransport, version: WeightVersion, **weights: torch.Tensor) -> WeightOffer:
    return trainer.publish(version, iter(weights.items()), refuse)


@pytest.fixture
def trainer(make: Make) -> ShmTransport:
    return make("shm", "trainer")


@pytest.fixture
def engine(make: Make) -> ShmTransport:
    return make("shm", "engine")


def segment(offer: WeightOffer) -> Path:
    return Path(offer.payload["segment"])


def overwrite(offer: WeightOffer, name: str, value: int) -> None:
    """Change the first byte of a tensor in the file."""
    index = [info.name for info in offer.tensors].index(name)
    with segment(offer).open("r+b") as stream:
        stream.seek(offer.payload["offsets"][index])
        stream.write(bytes([value]))


# --- damage ----------------------------------------------------------------------------------------


def test_a_damaged_parameter_is_named(trainer: ShmTransport, engine: ShmTransport) -> None:
    offer = publish(trainer, V1, good=torch.ones(100), bad=torch.ones(100))
    overwrite(offer, "bad", 7)
    with pytest.raises(TransportError, match=r"version 0\.1: the bytes of bad are damaged"):
        engine.receive(offer)


def test_without_verify_bytes_are_not_read(make: Make) -> None:
    trainer, engine = (make("shm", side, verify=False) for side in ("trainer", "engine"))
    offer = publish(trainer, V1, weight=torch.ones(100))
    overwrite(offer, "weight", 7)
    assert engine.receive(offer).mechanism == "tensors"


def test_a_truncated_segment_is_named(trainer: ShmTransport, engine: ShmTransport) -> None:
    offer = publish(trainer, V1, weight=torch.ones(5000))
    os.truncate(segment(offer), 4096)
    with pytest.raises(TransportError, match=r"0\.1 is truncated: .* holds 4096 of 20096 bytes"):
        engine.receive(offer)


def test_a_missing_segment_is_named(trainer: ShmTransport, engine: ShmTransport) -> None:
    offer = publish(trainer, V1, weight=torch.ones(5))
    segment(offer).unlink()
    with pytest.raises(TransportError, match=rf"{segment(offer)} is gone"):
        engine.receive(offer)


def test_a_file_that_is_no_segment_is_refused(trainer: ShmTransport, engine: ShmTransport) -> None:
    offer = publish(trainer, V1, weight=torch.ones(5))
    segment(offer).write_bytes(bytes(offer.payload["size"]))
    with pytest.raises(TransportError, match="is not whole"):
        engine.receive(offer)


def test_overwriting_a_version_while_it_is_read_is_noticed(trainer: ShmTransport, engine: ShmTransport) -> None:
    tensors = engine.receive(publish(trainer, V1, weight=torch.ones(5))).tensors()
    next(tensors)
    trainer.release(V1)
    publish(trainer, V2, weight=torch.zeros(5))
    with pytest.raises(TransportError, match=r"version 0\.1 .* overwritten"):
        next(tensors)


def test_a_version_that_was_received_but_is_overwritten_cannot_be_read(
    trainer: ShmTransport, engine: ShmTransport
) -> None:
    source = engine.receive(publish(trainer, V1, weight=torch.ones(5)))
    trainer.release(V1)
    publish(trainer, V2, weight=torch.zeros(5))
    with pytest.raises(TransportError, match="overwritten"):
        next(source.tensors())


def test_full_shared_memory_says_how_much_is_free(
    trainer: ShmTransport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(TransportError, match=r"does not fit into .*MiB are free.*--shm-size"):
        publish(trainer, V1, weight=torch.ones(5))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_host_without_shared_memory_is_told_of_disk(tmp_path: Path) -> None:
    context = TransportContext("engine", Place(), tmp_path, verify=True, bucket_bytes=1)
    with pytest.raises(InputError, match=r"nowhere: there is no such directory \(use the transport disk"):
        ShmTransport(ShmOptions(str(tmp_path / "nowhere")), context)


# --- reuse -----------------------------------------------------------------------------------------


def test_a_steady_run_writes_two_segments_again_and_again(
    trainer: ShmTransport, engine: ShmTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = []
    for step in range(8):
        if step == 3:  # from here on nothing may be allocated or mapped, on either side
            monkeypatch.setattr(os, "posix_fallocate", None)
            monkeypatch.setattr(mmap, "mmap", None)
        offer = publish(trainer, WeightVersion(0, step), weight=torch.full((3000,), float(step)))
        (_, tensor), *_ = engine.receive(offer).tensors()
        places.append((segment(offer).name, tensor.data_ptr()))
        trainer.release(WeightVersion(0, step - 1))
    assert len(set(places)) == 2
    assert places[2:4] == places[4:6] == places[6:8]


def test_a_segment_takes_no_more_than_it_holds(trainer: ShmTransport) -> None:
    offer = publish(trainer, V1, a=torch.ones(100_000), b=torch.ones(7))
    assert segment(offer).stat().st_size == offer.payload["size"] == 64 + 400_000 + 64


def test_tensors_are_views_of_shared_memory(trainer: ShmTransport, engine: ShmTransport) -> None:
    offer = publish(trainer, V1, weight=torch.zeros(16, dtype=torch.uint8))
    (_, tensor), *_ = engine.receive(offer).tensors()
    overwrite(offer, "weight", 9)
    assert tensor[0] == 9


def test_an_engine_that_writes_to_a_view_harms_nobody(make: Make, trainer: ShmTransport) -> None:
    offer = publish(trainer, V1, weight=torch.ones(16))
    (_, tensor), *_ = make("shm", "engine").receive(offer).tensors()
    tensor.zero_()
    (_, other), *_ = make("shm", "engine").receive(offer).tensors()
    assert other.sum() == 16


def test_tensors_start_at_cache_lines(trainer: ShmTransport) -> None:
    offer = publish(trainer, V1, a=torch.ones(3, dtype=torch.int8), b=torch.ones(3, dtype=torch.float64))
    assert [offset % 64 for offset in offer.payload["offsets"]] == [0, 0]


def test_an_engine_forgets_the_segments_of_a_trainer_that_ended(make: Make, engine: ShmTransport) -> None:
    first = make("shm", "trainer")
    engine.receive(publish(first, V1, weight=torch.ones(5)))
    first.close()
    engine.receive(publish(make("shm", "trainer"), V2, weight=torch.ones(5)))
    assert len(engine._attached) == 1


def test_a_handle_is_enough_to_read_the_bytes(make: Make) -> None:
    trainer, engine = (make("shm", side, mechanism="shm-handle") for side in ("trainer", "engine"))
    weight = torch.arange(12, dtype=torch.float32).view(3, 4)
    source = engine.receive(publish(trainer, V1, weight=weight))
    handle = source.handle()
    with Path(handle["segment"]).open("rb") as stream:
        raw = np.frombuffer(mmap.mmap(stream.fileno(), handle["size"], access=mmap.ACCESS_READ), dtype=np.uint8)
    (tensor,) = handle["tensors"]
    found = raw[tensor["offset"] : tensor["offset"] + 48].view(tensor["dtype"]).reshape(tensor["shape"])
    assert (found == weight.numpy()).all()
    assert (source.mechanism, int(raw[8:16].view("<u8")[0])) == ("shm-handle", handle["stamp"])


# --- processes -------------------------------------------------------------------------------------


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Start:
    """Start one of `shm_peers` in a fresh interpreter, which finds that module on the path."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    peers = importlib.import_module("shm_peers")

    def start(name: str) -> tuple[Any, Connection]:
        return _start(getattr(peers, name), tmp_path)

    return start


def _start(target: Callable[..., None], work: Path) -> tuple[Any, Connection]:
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    process = spawn.Process(target=target, args=(work, there))
    process.start()
    there.close()
    return process, here


def test_an_engine_in_another_process_reads_version_after_version(trainer: ShmTransport, start: Start) -> None:
    process, link = start("engine")
    for step in range(1, 6):
        version = WeightVersion(0, step)
        link.send(publish(trainer, version, a=torch.full((1000,), float(step)), b=torch.ones(step)))
        assert link.recv() == {"a": 1000.0 * step, "b": step}
        trainer.release(version)
    link.send(None)
    process.join()
    assert process.exitcode == 0


def test_the_next_trainer_removes_what_a_killed_one_left(
    make: Make, trainer: ShmTransport, engine: ShmTransport, start: Start
) -> None:
    living = publish(trainer, V1, weight=torch.ones(5))
    process, link = start("doomed")
    orphan = link.recv()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert segment(orphan).exists()
    make("shm", "trainer")
    assert not segment(orphan).parent.exists()
    assert segment(living).exists()
    with pytest.raises(TransportError, match=r"version 0\.1: .* is gone; its trainer has ended"):
        engine.receive(orphan)


def test_an_engine_that_ends_removes_what_a_killed_trainer_left(
    trainer: ShmTransport, engine: ShmTransport, start: Start
) -> None:
    living = publish(trainer, V1, weight=torch.ones(5))
    process, link = start("doomed")
    orphan = link.recv()
    process.join()
    engine.close()
    assert not segment(orphan).parent.exists()
    assert segment(living).exists()


def test_names_carry_the_run_and_the_process(trainer: ShmTransport, tmp_path: Path) -> None:
    from areal_plugins.builtin.ownership import run_key

    directory = segment(publish(trainer, V1, weight=torch.ones(5))).parent
    assert directory.name.startswith(f"areal-weights-{run_key(tmp_path / 'weights')}-{os.getpid()}-")


def test_what_others_keep_there_is_left_alone(make: Make, tmp_path: Path) -> None:
    foreign = [tmp_path / "shm" / name for name in ("areal-other", "psm_1234", ".areal-weights-new")]
    for path in foreign:
        path.mkdir()
    make("shm", "trainer")
    assert all(path.exists() for path in foreign)
