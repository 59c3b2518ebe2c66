"""Seeds from seeds: one number a stream, the same in every process."""

from __future__ import annotations

_MASK = (1 << 64) - 1


def derive(seed: int, *keys: int) -> int:
    """A seed for the stream that `keys` name below `seed`; 63 bits, any ints.

    Each key is one step of SplitMix64 (Steele, Lea and Flood, 2014), so that neighbouring keys give
    unrelated streams.
    """
    state = _mix(seed & _MASK)
    for key in keys:
        state = _mix((state + 0x9E3779B97F4A7C15 * (key + 1)) & _MASK)
    return state >> 1


def _mix(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)
