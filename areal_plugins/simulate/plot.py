"""Plots without a library: SVG for files, bars for terminals."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from areal_plugins.simulate.outcome import Outcome

WIDTH, HEIGHT, LEFT, BELOW, ABOVE = 720, 420, 80, 60, 40
BARS = 40
_TOKENS, _IDLE, _LAGS = "#2563eb", "#94a3b8", "#0d9488"


def bar(share: float) -> str:
    """A share of 1 as characters."""
    return "#" * round(BARS * max(0.0, min(1.0, share)))


def svg(outcomes: Sequence[Outcome], chosen: Outcome, title: str) -> str:
    """Throughput and utilization by the number of generating devices above, lags of the chosen split below."""
    top = _frame(title, "thousand tokens/s, by devices that generate") + _throughput(outcomes, chosen)
    below = (
        f'<g transform="translate(0,{HEIGHT})">{_frame("", "share of the trained tokens, by lag")}{_lags(chosen)}</g>'
    )
    size = f'width="{WIDTH}" height="{2 * HEIGHT}" viewBox="0 0 {WIDTH} {2 * HEIGHT}"'
    style = "<style>text{font:13px sans-serif;fill:#0f172a}.t{font-size:16px}</style>"
    back = f'<rect width="{WIDTH}" height="{2 * HEIGHT}" fill="#ffffff"/>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{style}{back}{top}{below}</svg>\n'


def _frame(title: str, axis: str) -> str:
    bottom = HEIGHT - BELOW
    return (
        f'<text class="t" x="{LEFT}" y="24">{escape(title)}</text>'
        f'<text x="{LEFT}" y="{HEIGHT - 12}">{escape(axis)}</text>'
        f'<path d="M{LEFT} {ABOVE}V{bottom}H{WIDTH - 20}" fill="none" stroke="#0f172a"/>'
    )


def _throughput(outcomes: Sequence[Outcome], chosen: Outcome) -> str:
    most = max(outcome.tokens for outcome in outcomes)
    return "".join(
        _column(place, len(outcomes), outcome.tokens / most, _TOKENS if outcome is chosen else _IDLE,
                str(outcome.job.engines * outcome.job.engine_devices),
                f"{outcome.tokens / 1e3:.1f} ({outcome.utilization:.0%})")
        for place, outcome in enumerate(outcomes)
    )  # fmt: skip


def _lags(outcome: Outcome) -> str:
    most = max(outcome.lags.values(), default=1.0)
    return "".join(
        _column(place, len(outcome.lags), share / most, _LAGS, str(lag), f"{share:.1%}")
        for place, (lag, share) in enumerate(outcome.lags.items())
    )


def _column(place: int, count: int, share: float, colour: str, under: str, over: str) -> str:
    room = (WIDTH - 20 - LEFT) / count
    width, tall = min(90.0, room * 0.7), share * (HEIGHT - BELOW - ABOVE - 20)
    middle, bottom = LEFT + room * (place + 0.5), HEIGHT - BELOW
    return (
        f'<rect x="{middle - width / 2:.1f}" y="{bottom - tall:.1f}" width="{width:.1f}" height="{tall:.1f}"'
        f' fill="{colour}"/>'
        f'<text x="{middle:.1f}" y="{bottom - tall - 6:.1f}" text-anchor="middle">{escape(over)}</text>'
        f'<text x="{middle:.1f}" y="{bottom + 18}" text-anchor="middle">{escape(under)}</text>'
    )
