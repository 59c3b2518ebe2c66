"""What an inference engine must keep."""

from __future__ import annotations

from areal_plugins.testing.conformance.engine.books import Books
from areal_plugins.testing.conformance.engine.crowds import Crowds
from areal_plugins.testing.conformance.engine.draws import Draws
from areal_plugins.testing.conformance.engine.ends import Ends
from areal_plugins.testing.conformance.engine.stops import Stops
from areal_plugins.testing.conformance.engine.updates import Updates


class EngineConformance(Books, Crowds, Updates, Stops, Ends, Draws):
    """Rules for engines of language models, against a tiny Qwen2 that plain transformers runs beside them.

    `tolerance`: largest difference of a log-probability from the float64 reference. `gap`: greedy
    decoding must take the likeliest token where its logit leads by more than this. `dtype`: what the
    engine is asked to compute in. `patience`: seconds that any one rule may take.
    """
