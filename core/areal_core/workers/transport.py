"""One end of the weight transport, built where it is used."""

from __future__ import annotations

from pathlib import Path

from areal_core.contexts import Place, TransportContext
from areal_core.protocols import Transport
from areal_core.workers.build import build
from areal_core.workers.plans import TransportPlan


def build_transport(plan: TransportPlan, side: str, place: Place) -> Transport:
    """The `side` (`trainer` or `engine`) of the transport that both plans name."""
    transport: Transport = build(
        plan.component,
        TransportContext(
            side=side,
            place=place,
            work=Path(plan.work),
            verify=plan.verify,
            bucket_bytes=plan.bucket_bytes,
            mechanism=plan.mechanism,
        ),
    )
    return transport
