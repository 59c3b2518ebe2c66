"""What a weight transport must keep."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from attrs import evolve

from areal_core.contexts import Place, TransportContext
from areal_core.data import WeightOffer, WeightVersion
from areal_core.errors import TransportError
from areal_plugins.testing.conformance.base import Conformance, Subject
from areal_plugins.testing.conformance.moving import (
    FILE,
    Bits,
    Ends,
    Interrupted,
    arrived,
    bits,
    damage,
    doomed_peer,
    engine_peer,
    held_files,
    peer,
    publish,
    random_bits,
    save,
    sockets,
    unlike,
)

DTYPES = ("float32", "bfloat16", "float16", "float64", "int8", "uint8", "int16", "int32", "int64", "bool")
SHAPES: dict[str, tuple[int, ...]] = {
    "scalar": (),
    "empty": (0,),
    "empty rows": (3, 0),
    "one": (1,),
    "odd": (3, 5, 7),
    "large": (257, 1031),
}
V1, V2, V3 = (WeightVersion(0, step) for step in (1, 2, 3))


class TransportConformance(Conformance):
    """Rules for weight transports: what is published arrives, to the bit, or the engine's end says that it did not.

    `bucket_bytes`: the buckets they are told to use, smaller than the largest tensor.
    """

    kind: ClassVar[str] = "transport"
    bucket_bytes: ClassVar[int] = 1 << 16

    @pytest.fixture
    def ends(self, subject: Subject, tmp_path: Path) -> Iterator[Ends]:
        """Builds both ends, in one work folder, with `verify` on."""
        if subject.descriptor.capabilities.collective:
            pytest.skip("the transport is collective: its ends form a process group, which the kit does not build")
        work = tmp_path / "weights"
        work.mkdir()
        ends = Ends(subject, TransportContext("engine", Place(), work, True, self.bucket_bytes, self.offered(subject)))
        yield ends
        ends.close()

    # --- bits --------------------------------------------------------------------------------------

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_every_dtype_arrives(self, ends: Ends, dtype: str) -> None:
        """Bits of every dtype arrive unchanged, NaNs with payloads among them."""
        self.crosses(ends, {"weight": random_bits(getattr(torch, dtype), (33, 5))})

    @pytest.mark.parametrize("shape", SHAPES)
    def test_every_shape_arrives(self, ends: Ends, shape: str) -> None:
        """Tensors of every shape arrive with it: scalars, empty ones, ones larger than a bucket."""
        self.crosses(ends, {"before": torch.ones(3), "weight": random_bits(torch.float32, SHAPES[shape])})

    def test_many_tensors_arrive_in_their_order(self, ends: Ends) -> None:
        """Many tensors of mixed dtypes arrive, each under its name."""
        kinds = [getattr(torch, dtype) for dtype in DTYPES]
        weights = {f"layer.{i}": random_bits(kinds[i % len(kinds)], (i % 5, 7), seed=i) for i in range(40)}
        self.crosses(ends, weights)

    def test_strides_do_not_matter(self, ends: Ends) -> None:
        """Tensors that are not contiguous arrive as what they look like."""
        base = random_bits(torch.float32, (6, 8))
        self.crosses(ends, {"transposed": base.t(), "strided": base[::2, 1::3], "expanded": base[:1].expand(4, 8)})

    def test_tied_weights_arrive_under_both_names(self, ends: Ends) -> None:
        """A tensor that stands under two names arrives under both."""
        shared = torch.nn.Parameter(random_bits(torch.bfloat16, (9, 4)))
        self.crosses(ends, {"embed": shared, "head": shared})

    def test_a_directory_arrives_whole(self, ends: Ends, subject: Subject) -> None:
        """`hf-dir`: the engine finds every file that the trainer saved, with the same bytes."""
        if "hf-dir" not in subject.descriptor.capabilities.offers:
            pytest.skip("the transport does not offer hf-dir")
        trainer, engine = ends.both(mechanism="hf-dir")
        weights = {"weight": torch.arange(100.0)}
        offer = publish(trainer, V1, weights)
        found = engine.receive(offer).path()
        save(ends.context.work.parent / "expected", weights)
        for name in (FILE, "config.json"):
            same = (found / name).read_bytes() == (ends.context.work.parent / "expected" / name).read_bytes()
            assert same, f"{name} differs from what the trainer saved"

    # --- versions ----------------------------------------------------------------------------------

    def test_the_offer_says_what_it_is(self, ends: Ends, subject: Subject) -> None:
        """An offer names its version, the transport and the mechanism that was asked for."""
        offer = publish(ends.make("trainer"), V2, {"weight": torch.ones(3)})
        expected = (V2, subject.descriptor.name, ends.context.mechanism)
        found = (offer.version, offer.transport, offer.mechanism)
        assert found == expected, f"the offer says {tuple(map(str, found))}, not {tuple(map(str, expected))}"

    def test_versions_follow_each_other(self, ends: Ends) -> None:
        """Version after version arrives, also where shapes change between them."""
        trainer, engine = ends.both()
        for step, shape in enumerate([(4,), (4,), (400, 50), (3, 3), (4,)]):
            weights = {"weight": random_bits(torch.float32, shape, seed=step)}
            problem = unlike(arrived(engine, publish(trainer, WeightVersion(0, step), weights)), weights)
            assert not problem, f"version {step}: {problem}"
            engine.release(WeightVersion(0, step))
            trainer.release(WeightVersion(0, step))

    def test_a_version_stays_while_the_next_is_published(self, ends: Ends) -> None:
        """A version that was not released is what it was, though another has been published."""
        trainer, engine = ends.both()
        sent = [{"weight": torch.full((50,), float(version.step))} for version in (V1, V2)]
        offers = [publish(trainer, version, weights) for version, weights in zip((V1, V2), sent, strict=True)]
        for offer, weights in zip(offers, sent, strict=True):
            problem = unlike(arrived(engine, offer), weights)
            assert not problem, f"version {offer.version}: {problem}"

    def test_a_published_version_does_not_follow_the_trainer(self, ends: Ends) -> None:
        """What the trainer does to its tensors after `publish` does not reach the version."""
        trainer, engine = ends.both()
        weight = torch.ones(50)
        offer = publish(trainer, V1, {"weight": weight})
        weight.zero_()
        problem = unlike(arrived(engine, offer), {"weight": torch.ones(50)})
        assert not problem, f"after the trainer went on, {problem}"

    def test_several_engines_get_one_version(self, ends: Ends) -> None:
        """Every engine gets a version, and may fetch it again."""
        weights = {"weight": random_bits(torch.float32, (9, 9))}
        offer = publish(ends.make("trainer"), V1, weights)
        engines = [ends.make("engine") for _ in range(2)]
        for engine in [*engines, engines[0]]:
            problem = unlike(arrived(engine, offer), weights)
            assert not problem, problem

    # --- what goes wrong ---------------------------------------------------------------------------

    def test_weights_that_stop_coming_leave_no_version(self, ends: Ends) -> None:
        """Where the trainer's weights end in an error, `publish` raises it, keeps nothing, and works again."""
        trainer, engine = ends.both()
        before = held_files(ends.context.work)
        raised = False
        try:
            trainer.publish(V1, _interrupted(), _refuse)
        except Interrupted:
            raised = True
        assert raised, "publish hides that the weights ended in an error"
        left = _new_data(before, ends.context.work)
        assert not left, f"an interrupted version leaves {', '.join(map(str, sorted(left)))}"
        weights = {"weight": torch.ones(9)}
        problem = unlike(arrived(engine, publish(trainer, V1, weights)), weights)
        assert not problem, f"after an interrupted version, {problem}"

    def test_damaged_bytes_are_found(self, ends: Ends, subject: Subject) -> None:
        """With `verify` on, a version whose bytes have changed on the way is a `TransportError`."""
        if subject.descriptor.capabilities.scope == "process":
            pytest.skip("nothing of it leaves the process")
        trainer, engine = ends.both()
        weights = {"good": torch.ones(64), "bad": random_bits(torch.float32, (64, 64))}
        before = held_files(Path("/nowhere"))
        offer = publish(trainer, V1, weights)
        assert self.damage(offer, ends.context.work, before, bits(weights["bad"])[2]), (
            "no file holds the weights, so the kit cannot damage them: override `damage`"
        )
        self.refused(lambda: arrived(engine, offer), "bytes that were changed on the way")

    def test_a_released_version_is_gone(self, ends: Ends) -> None:
        """A version that was released is a `TransportError`, never another version's weights."""
        trainer, engine = ends.both()
        offer = publish(trainer, V1, {"weight": torch.ones(9)})
        trainer.release(V1)
        publish(trainer, V2, {"weight": torch.zeros(9)})
        self.refused(lambda: arrived(engine, offer), "a version that was released")

    def test_a_version_of_a_closed_trainer_is_gone(self, ends: Ends) -> None:
        """A version whose trainer has closed is a `TransportError`."""
        trainer, engine = ends.both()
        offer = publish(trainer, V1, {"weight": torch.ones(9)})
        trainer.close()
        self.refused(lambda: arrived(engine, offer), "a version of a trainer that has closed")

    def test_an_offer_of_another_transport_is_refused(self, ends: Ends) -> None:
        """An offer that another transport made is a `TransportError`."""
        foreign = evolve(publish(ends.make("trainer"), V1, {"weight": torch.ones(9)}), transport="pigeon")
        self.refused(lambda: arrived(ends.make("engine"), foreign), "an offer of another transport")

    def test_releasing_an_unknown_version_is_no_error(self, ends: Ends) -> None:
        """`release` of a version that nobody published does nothing."""
        for end in ends.both():
            end.release(V3)

    # --- what it keeps -----------------------------------------------------------------------------

    def test_release_frees(self, ends: Ends) -> None:
        """Publishing and releasing again and again takes no more room than twice, but for less than a version."""
        trainer, engine = ends.both()
        taken = []
        for step in range(6):
            weights = {"weight": random_bits(torch.float32, (100, 100), seed=step)}
            arrived(engine, publish(trainer, WeightVersion(0, step), weights))
            engine.release(WeightVersion(0, step))
            trainer.release(WeightVersion(0, step))
            taken.append(sum(file.stat().st_size for file in held_files(ends.context.work)))
        version = weights["weight"].nbytes  # less is anybody's: the files of all processes are looked at
        grown = f"released versions take {taken[-1]} bytes after 6 of them, {taken[1]} after 2"
        assert taken[-1] < taken[1] + version, grown

    def test_close_leaves_nothing(self, ends: Ends) -> None:
        """After `close` of both ends no file, shared memory, socket or thread is left."""
        before = (held_files(ends.context.work), sockets(), set(threading.enumerate()))
        trainer, engine = ends.both()
        arrived(engine, publish(trainer, V1, {"weight": torch.ones(5000)}))
        publish(trainer, V2, {"weight": torch.ones(5000)})
        during = held_files(ends.context.work)
        engine.close()
        trainer.close()
        files = {file for file in during - before[0] if file.exists()} | (held_files(ends.context.work) - before[0])
        assert not files, f"close leaves {', '.join(map(str, sorted(files)))}"
        assert sockets() <= before[1], f"close leaves {sockets() - before[1]} sockets open"
        threads = set(threading.enumerate()) - before[2]
        assert not threads, f"close leaves the threads {', '.join(thread.name for thread in threads)}"

    # --- between processes -------------------------------------------------------------------------

    def test_an_engine_in_another_process_gets_every_version(self, ends: Ends, subject: Subject) -> None:
        """Where `scope` reaches beyond a process, an engine in another one gets version after version."""
        if subject.descriptor.capabilities.scope == "process":
            pytest.skip("its scope is one process")
        trainer = ends.make("trainer")
        with peer(engine_peer, subject.ref, ends.context) as link:
            for step in range(3):
                weights = {"weight": random_bits(torch.bfloat16, (50, 3 + step), seed=step), "bias": torch.ones(3)}
                link.send(publish(trainer, WeightVersion(0, step), weights))
                found: dict[str, Bits] | str = link.recv()
                problem = found if isinstance(found, str) else unlike(found, weights)
                assert not problem, f"version {step}, in another process: {problem}"
                trainer.release(WeightVersion(0, step))

    def test_a_killed_trainer_is_noticed(self, ends: Ends, subject: Subject) -> None:
        """What a killed trainer had published arrives whole, or is a `TransportError`; the next trainer works."""
        if subject.descriptor.capabilities.scope == "process":
            pytest.skip("its scope is one process")
        context = evolve(ends.context, side="trainer")
        with peer(doomed_peer, subject.ref, context) as link:
            offer = link.recv()
        engine = ends.make("engine")
        try:
            problem = unlike(arrived(engine, offer), {"weight": torch.ones(1000)})
        except TransportError:
            problem = ""
        assert not problem, f"a version of a trainer that was killed: {problem}"
        weights = {"weight": torch.full((9,), 2.0)}
        problem = unlike(arrived(engine, publish(ends.make("trainer"), V2, weights)), weights)
        assert not problem, f"after a trainer was killed, {problem}"

    def test_its_scope_is_honest(self, ends: Ends, subject: Subject) -> None:
        """A transport whose `scope` is one process says so to an engine in another one, by a `TransportError`."""
        if subject.descriptor.capabilities.scope != "process":
            pytest.skip("its scope reaches beyond a process")
        offer = publish(ends.make("trainer"), V1, {"weight": torch.ones(3)})
        with peer(engine_peer, subject.ref, ends.context) as link:
            link.send(offer)
            found = link.recv()
        assert str(found).startswith("TransportError"), f"in another process the engine's end says {found}"

    # --- what rules are made of --------------------------------------------------------------------

    @staticmethod
    def offered(subject: Subject) -> str:
        """The mechanism that the rules use; those about directories have their own."""
        offers = subject.descriptor.capabilities.offers
        if "tensors" not in offers:
            pytest.skip(f"the transport offers {', '.join(offers)}, and no tensors")
        return "tensors"

    def damage(self, offer: WeightOffer, work: Path, before: set[Path], data: bytes) -> bool:
        """Change a bit of the published bytes `data`; False where they cannot be found.

        The kit looks through files, memory mapped ones too, that are new since `before`. A transport that
        keeps its bytes elsewhere overrides this.
        """
        return damage(held_files(work) - before, data)

    @staticmethod
    def crosses(ends: Ends, weights: dict[str, torch.Tensor]) -> None:
        """The weights arrive as they are."""
        trainer, engine = ends.both()
        problem = unlike(arrived(engine, publish(trainer, V1, weights)), weights)
        assert not problem, problem

    @staticmethod
    def refused(fetch: Callable[[], Any], what: str) -> None:
        """Fetching is a `TransportError`."""
        try:
            fetch()
        except TransportError:
            return
        except Exception as error:
            raise AssertionError(f"{what}: {type(error).__name__} instead of TransportError: {error}") from error
        raise AssertionError(f"{what} can be fetched without a word")


def _interrupted() -> Iterator[tuple[str, torch.Tensor]]:
    yield "first", torch.ones(5000)
    raise Interrupted


def _refuse(directory: Path) -> None:
    raise AssertionError(f"the mechanism is tensors, and a directory was asked for ({directory})")


def _new_data(before: set[Path], work: Path) -> set[Path]:
    return {file for file in held_files(work) - before if file.stat().st_size}
