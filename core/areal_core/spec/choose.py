"""The choices a spec leaves open: the platform, and how weights travel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from attrs import NOTHING, evolve, fields, frozen

from areal_core.descriptors import Mechanism, TransportDescriptor
from areal_core.importing import import_object
from areal_core.requirements import unmet_requirements
from areal_core.spec.catalog import Catalog
from areal_core.spec.model import Spec
from areal_core.spec.structure import Part, Structured

if TYPE_CHECKING:
    from areal_core.protocols import Platform

SCOPES = ("process", "host", "network")
"""How far a transport reaches; the shortest that suffices is the fastest."""


@frozen(repr=False, eq=False)
class Choice:
    """A component, why it is this one, and for a transport how both ends meet; `named` by the spec or chosen."""

    part: Part
    reason: str
    mechanism: str = ""
    named: bool = False


# --- platform ----------------------------------------------------------------------------------------


def choose_platform(structured: Structured, catalog: Catalog) -> Choice | None:
    """The named platform, or for `auto` the best that has a device here; None, once reported."""
    part = structured.part("platform")
    if part.name != "auto":
        return Choice(part, "named by the spec", named=True) if part.options is not None else None
    candidates = _candidates(part, structured, catalog)
    rejected: list[str] = []
    for candidate in sorted(candidates, key=lambda c: -c.descriptor.capabilities.priority):
        lack = unmet_requirements(candidate.descriptor.requires) or _lack(candidate)
        if not lack:
            return Choice(candidate, "; ".join([*rejected, f"{candidate.name} is the best that is present"]))
        rejected.append(f"{candidate.name}: {lack if isinstance(lack, str) else lack[0]}")
    reason = "; ".join(rejected) or "no platform is installed"
    catalog.report.unavailable("no-platform", f"there is no platform to run on ({reason})", ("platform",))
    return None


def report_devices(choice: Choice, needed: int, catalog: Catalog) -> None:
    """Report a named platform that this machine lacks, or too few of its devices."""
    path = (*choice.part.path, "type")
    if lack := _lack(choice.part):
        catalog.report.unavailable("missing-device", f"platform {choice.part.name}: {lack}", path)
        return
    if choice.part.descriptor.capabilities.device == "cpu":
        return  # processes share cores
    count = _platform(choice.part).count()
    if needed > count:
        message = f"the spec takes {needed} {choice.part.name} devices of a machine; this one has {count}"
        catalog.report.unavailable("missing-device", message, ("resources",))


def _platform(part: Part) -> Platform:
    platform: Platform = import_object(part.descriptor.factory)(part.options, None)
    return platform


def _lack(part: Part) -> str:
    """Why the platform cannot be used here; empty when it can."""
    try:
        platform = _platform(part)
        return platform.missing() or ("" if platform.count() else "no device is present")
    except Exception as error:  # a platform that cannot even be asked is not one to use
        return f"it cannot be asked: {error}"


# --- transport ---------------------------------------------------------------------------------------


def choose_transport(structured: Structured, platform: str, catalog: Catalog) -> Choice | None:
    """The transport and the mechanism by which trainer and engine meet; None, once reported.

    Among those that reach, the shortest scope wins, then the engine's favourite mechanism, then the
    transport's. Without a trainer or engine to ask, nothing is chosen and nothing reported.
    """
    trainer, engine = structured.part("training"), structured.part("inference")
    executor, part = structured.part("executor"), structured.part("weights")
    if None in (trainer.descriptor, engine.descriptor, executor.descriptor):
        return None
    reach = _reach(structured.spec, executor.descriptor.capabilities)
    if part.name != "auto":
        return _named_transport(part, trainer.descriptor, engine.descriptor, reach, catalog)
    offers, rejected = [], []
    for candidate in _candidates(part, structured, catalog):
        problem = _obstacle(candidate.descriptor, reach) or _elsewhere(candidate.descriptor, platform)
        mechanisms = [] if problem else _mechanisms(candidate.descriptor, trainer.descriptor, engine.descriptor)
        if mechanisms:
            offers.append((_rank(candidate.descriptor, engine.descriptor, mechanisms[0]), candidate, mechanisms[0]))
        else:
            rejected.append(f"not {candidate.name}: it {problem or 'shares no mechanism with both ends'}")
    if offers:
        _, best, mechanism = min(offers, key=lambda offer: offer[0])
        ends = f"trainer {trainer.name} and engine {engine.name}"
        reason = f"by {mechanism}: the shortest way between {ends} that reaches over a {reach.span}"
        return Choice(best, "; ".join([reason, *rejected]), mechanism)
    _report_none(trainer, engine, rejected, catalog)
    return None


@frozen(repr=False, eq=False)
class _Reach:
    """How far apart the two ends are: within a `process`, a `host` or a `network`."""

    span: str

    @property
    def index(self) -> int:
        return SCOPES.index(self.span)


def _reach(spec: Spec, executor: Any) -> _Reach:
    if not executor.processes:
        return _Reach("process")
    train, infer = spec.resources.train, spec.resources.infer
    apart = max(train.nodes, infer.nodes) > 1 or (executor.nodes and spec.placement == "disjoint")
    return _Reach("network" if apart else "host")


def _named_transport(part: Part, trainer: Any, engine: Any, reach: _Reach, catalog: Catalog) -> Choice | None:
    if part.descriptor is None:
        return None
    path = (*part.path, "type")
    if obstacle := _obstacle(part.descriptor, reach):
        hint = "write type: auto, or another transport"
        catalog.report.error("transport-out-of-reach", f"transport {part.name} {obstacle}", path, hint)
        return None
    mechanisms = _mechanisms(part.descriptor, trainer, engine)
    if not mechanisms:
        message = (
            f"transport {part.name} offers {_listed(part.descriptor.capabilities.offers)}, "
            f"engine {engine.name} accepts {_listed(engine.capabilities.accepts)}, "
            f"trainer {trainer.name} feeds {_listed(trainer.capabilities.offers)}: nothing in common"
        )
        catalog.report.error("no-mechanism", message, path, "write type: auto, or another transport")
        return None
    return Choice(part, "named by the spec", mechanisms[0], named=True) if part.options is not None else None


def _report_none(trainer: Part, engine: Part, rejected: list[str], catalog: Catalog) -> None:
    why = f" ({'; '.join(rejected)})" if rejected else ""
    message = f"no installed transport moves weights from trainer {trainer.name} to engine {engine.name}{why}"
    catalog.report.unavailable("no-mechanism", message, ("weights",))


def _obstacle(transport: TransportDescriptor, reach: _Reach) -> str:
    scope = transport.capabilities.scope
    if scope == "process" and reach.span != "process":
        return "stays in one process, and trainer and engine are two"
    if SCOPES.index(scope) < reach.index:
        return "stays on one machine, and trainer and engine may be on two"
    if transport.capabilities.collective and reach.span == "process":
        return "needs processes of their own for its ends"
    return ""


def _elsewhere(transport: TransportDescriptor, platform: str) -> str:
    if transport.platforms and platform not in transport.platforms:
        return f"is not for {platform}"
    if unmet := unmet_requirements(transport.requires):
        return f"cannot run: {unmet[0]}"
    return ""


def _mechanisms(transport: TransportDescriptor, trainer: Any, engine: Any) -> list[Mechanism]:
    """What all three know, the engine's favourite first."""
    feeds, offers = trainer.capabilities.offers, transport.capabilities.offers
    return [m for m in engine.capabilities.accepts if m in offers and m in feeds]


def _rank(transport: TransportDescriptor, engine: Any, mechanism: Mechanism) -> tuple[int, int, int, str]:
    capabilities = transport.capabilities
    favourite = engine.capabilities.accepts.index(mechanism)
    return SCOPES.index(capabilities.scope), favourite, list(capabilities.offers).index(mechanism), transport.name


# --- both --------------------------------------------------------------------------------------------


def _candidates(part: Part, structured: Structured, catalog: Catalog) -> Iterator[Part]:
    """What `auto` may stand for: each installed component of the kind, with the options of its block."""
    for name in catalog.manager.names(part.kind):
        cls, path = catalog.options_of(part.kind, name), (*part.path, name)
        registered = catalog.manager.find(part.kind, name) if cls else None
        if cls is None or registered is None or not registered.descriptor.automatic:
            continue
        options = structured.blocks.get(path)
        if options is None and not any(f.default is NOTHING for f in fields(cls)):
            options = cls()
        if options is not None:
            yield evolve(part, name=name, options_path=path, descriptor=registered.descriptor, options=options)


def _listed(mechanisms: tuple[str, ...]) -> str:
    return ", ".join(mechanisms) or "nothing"
