"""A transport over plain files, as a stranger might write one, and transports that each break one promise."""

from __future__ import annotations

import os
import shutil
import socket
import zlib
from pathlib import Path

import torch
from attrs import evolve

from areal_core.data import TensorInfo, WeightOffer
from areal_plugins import TransportCapabilities, TransportDescriptor, TransportError

_SHELF: dict[str, torch.Tensor] = {}


class Source:
    def __init__(self, transport, offer):
        self.mechanism = offer.mechanism
        self._transport, self._offer = transport, offer

    def path(self):
        return Path(self._offer.payload["directory"])

    def tensors(self):
        for index, info in enumerate(self._offer.tensors):
            data = bytearray((self.path() / f"{index}.bin").read_bytes())
            dtype = getattr(torch, info.dtype)
            flat = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
            yield info.name, flat.view(info.shape)


class PlainTransport:
    """Keeps every promise; its parts are there to be broken."""

    def __init__(self, options, context):
        self.context, self.root = context, context.work / "plain"
        if context.side == "trainer":
            shutil.rmtree(self.root, ignore_errors=True)

    def publish(self, version, weights, save):
        directory = self.directory(version)
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        infos, sums = [], []
        try:
            if self.context.mechanism == "hf-dir":
                self.save(save, directory)
            else:
                for index, (name, tensor) in enumerate(weights):
                    data = self.data(tensor)
                    (directory / f"{index}.bin").write_bytes(data)
                    infos.append(TensorInfo(name, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape)))
                    sums.append(zlib.crc32(data))
        except BaseException:
            self.clear(directory)
            raise
        place = {"directory": str(directory), "sums": sums}
        return WeightOffer(version, "plain", self.context.mechanism or "tensors", tuple(infos), place)

    def save(self, save, directory):
        save(directory)

    def data(self, tensor):
        flat = tensor.detach().contiguous().view(-1)
        return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""

    def clear(self, directory):
        shutil.rmtree(directory)

    def receive(self, offer):
        if offer.transport != "plain":
            raise TransportError("plain", f"made by {offer.transport}")
        self.verify(offer)
        return Source(self, offer)

    def verify(self, offer):
        directory = Path(offer.payload["directory"])
        if not directory.exists():
            raise TransportError("plain", f"version {offer.version} is gone")
        for index, expected in enumerate(offer.payload["sums"]):
            if zlib.crc32((directory / f"{index}.bin").read_bytes()) != expected:
                raise TransportError("plain", f"version {offer.version} is damaged")

    def release(self, version):
        if self.context.side == "trainer":
            shutil.rmtree(self.directory(version), ignore_errors=True)

    def close(self):
        if self.context.side == "trainer":
            shutil.rmtree(self.root, ignore_errors=True)

    def directory(self, version):
        return self.root / str(version)


# --- each breaks one promise -----------------------------------------------------------------------


class Rounds(PlainTransport):
    """Carries float64 as float32."""

    def data(self, tensor):
        return super().data(tensor.float().double() if tensor.dtype == torch.float64 else tensor)


class Flattens(PlainTransport):
    """A scalar arrives as a vector of one."""

    def publish(self, version, weights, save):
        return super().publish(version, ((n, t.view(1) if t.ndim == 0 else t) for n, t in weights), save)


class CutsBuckets(PlainTransport):
    """What is larger than a bucket arrives in part."""

    def data(self, tensor):
        data = super().data(tensor)
        size = self.context.bucket_bytes
        return data if len(data) <= 10 * size else data[:size] + bytes(len(data) - size)


class Sorts(PlainTransport):
    """Mixes up the tensors beyond the tenth."""

    def publish(self, version, weights, save):
        pairs = list(weights)
        names = sorted(name for name, _ in pairs) if len(pairs) > 10 else [name for name, _ in pairs]
        return super().publish(version, zip(names, (t for _, t in pairs), strict=True), save)


class IgnoresStrides(PlainTransport):
    """Takes the memory as it lies."""

    def data(self, tensor):
        if tensor.is_contiguous():
            return super().data(tensor)
        return (
            super()
            .data(torch.as_strided(tensor, (tensor.untyped_storage().nbytes() // tensor.itemsize,), (1,), 0))[
                : tensor.nbytes
            ]
            .ljust(tensor.nbytes, b"\0")
        )


class DropsTies(PlainTransport):
    """Knows each piece of memory once."""

    def publish(self, version, weights, save):
        seen = {}
        for name, tensor in weights:
            seen.setdefault((tensor.data_ptr(), tensor.shape, len(seen) * (not tensor.numel())), (name, tensor))
        return super().publish(version, iter(seen.values()), save)


class LosesFiles(PlainTransport):
    """Keeps the weights alone of what the trainer saves."""

    def save(self, save, directory):
        super().save(save, directory)
        (directory / "config.json").write_text("{}")


class Flat(PlainTransport):
    """Gives itself another name than its descriptor."""

    def publish(self, version, weights, save):
        return evolve(super().publish(version, weights, save), transport="flat")

    def receive(self, offer):
        return super().receive(evolve(offer, transport="plain") if offer.transport == "flat" else offer)


class FirstShapes(PlainTransport):
    """Believes that shapes never change."""

    known = None

    def publish(self, version, weights, save):
        offer = super().publish(version, weights, save)
        self.known = self.known or offer.tensors
        alike = [info.name for info in offer.tensors] == [info.name for info in self.known]
        return evolve(offer, tensors=self.known) if alike else offer


class OneShelf(PlainTransport):
    """Has room for one version."""

    def publish(self, version, weights, save):
        shutil.rmtree(self.root, ignore_errors=True)
        return super().publish(version, weights, save)


class Lazy(PlainTransport):
    """Writes a version when it is fetched."""

    waiting = None

    def publish(self, version, weights, save):
        pairs = list(weights)
        offer = super().publish(version, iter(pairs), save)
        if [name for name, _ in pairs] == ["weight"]:
            _SHELF[offer.payload["directory"]] = pairs[0][1]
        return offer

    def receive(self, offer):
        source = super().receive(offer)
        late = _SHELF.get(offer.payload["directory"])
        if late is not None and self.data(late).count(0) == late.nbytes:
            (source.path() / "0.bin").write_bytes(self.data(late))
        return source


class Once(PlainTransport):
    """A version can be fetched once."""

    def receive(self, offer):
        source = super().receive(offer)
        kept = dict(source.tensors())
        if kept.get("weight", torch.empty(0)).shape == (9, 9):
            shutil.rmtree(source.path())
        source.tensors = lambda: iter(kept.items())
        return source


class Litters(PlainTransport):
    """What an interrupted version has written stays."""

    def clear(self, directory):
        pass


class Trusts(PlainTransport):
    """Never looks at the bytes."""

    def verify(self, offer):
        super().verify(evolve(offer, payload={**offer.payload, "sums": []}))


class Substitutes(PlainTransport):
    """Serves what it has in place of a version that was released."""

    def receive(self, offer):
        directory = Path(offer.payload["directory"])
        if not directory.exists() and directory.parent.exists():
            other = next(iter(directory.parent.iterdir()))
            return Source(self, evolve(offer, payload={"directory": str(other)}))
        return super().receive(offer)


class Crashes(PlainTransport):
    """What is gone is an error of the file system."""

    def verify(self, offer):
        directory = Path(offer.payload["directory"])
        if not directory.parent.exists():
            raise FileNotFoundError(directory)
        super().verify(offer)


class TakesAnything(PlainTransport):
    """Does not ask who made an offer."""

    def receive(self, offer):
        return super().receive(evolve(offer, transport="plain"))


class Strict(PlainTransport):
    """Knows every version that it is told to release, or raises."""

    def release(self, version):
        if self.context.side == "trainer" and not self.directory(version).exists():
            raise KeyError(version)
        super().release(version)


class Hoards(PlainTransport):
    """Keeps what was released, under another name."""

    def release(self, version):
        if self.context.side == "trainer" and self.directory(version).exists():
            self.directory(version).rename(self.root / f"old-{version}")


class LeavesFile(PlainTransport):
    """Keeps a list of what it has published."""

    def publish(self, version, weights, save):
        offer = super().publish(version, weights, save)
        (self.context.work / "published.txt").write_text(str(version))
        return offer


class LeavesSocket(PlainTransport):
    def __init__(self, options, context):
        super().__init__(options, context)
        self.kept = socket.socket().detach()


class OneProcess(PlainTransport):
    """Works in the process that it was made in alone, and declares more."""

    def receive(self, offer):
        if offer.payload["process"] != os.getpid():
            raise TransportError("plain", "another process")
        return super().receive(offer)

    def publish(self, version, weights, save):
        offer = super().publish(version, weights, save)
        return evolve(offer, payload={**offer.payload, "process": os.getpid()})


class Mourns(PlainTransport):
    """A trainer refuses to start where another one has been killed."""

    def __init__(self, options, context):
        if context.side == "trainer" and (context.work / "plain").exists():
            raise TransportError("plain", "another trainer was here")
        super().__init__(options, context)


class Narrow(PlainTransport):
    """Reaches further than it declares."""


def descriptor(kind, scope="host"):
    return TransportDescriptor(
        name="plain",
        summary="Plain files",
        factory=f"{__name__}:{kind.__name__}",
        capabilities=TransportCapabilities(offers=("tensors", "hf-dir"), scope=scope),
    )
