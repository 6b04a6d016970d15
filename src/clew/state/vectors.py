"""Vectors as bytes, and how near two of them are. Plain Python, exact, the same everywhere.

Several vectors of one embedding stand one after the other: little-endian float32, each of length 1.
"""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Sequence
from operator import mul
from typing import Any

from clew.errors import BadInput

_WIDTH = 4


def direction(vector: Any, dims: int | None) -> array[float]:
    """The vector made 1 long. One of other dimensions, or without a direction, is `BadInput`."""
    try:
        numbers = [float(number) for number in vector]
    except (TypeError, ValueError, OverflowError) as error:
        raise BadInput(f"embed returned {vector!r:.60} where a list of numbers belongs") from error
    if dims is not None and len(numbers) != dims:
        raise BadInput(f"embed returned a vector of {len(numbers)} dimensions where {dims} were expected")
    length = math.hypot(*numbers)
    if not numbers or not math.isfinite(length) or length == 0.0:
        raise BadInput("embed returned a vector without a direction: it is empty, all zeros, or not finite")
    return array("f", [number / length for number in numbers])


def pack(vectors: Sequence[array[float]]) -> bytes:
    joined = array("f")
    for vector in vectors:
        joined.extend(vector)
    if sys.byteorder == "big":
        joined.byteswap()
    return joined.tobytes()


def nearest(packed: bytes, wanted: array[float]) -> float | None:
    """The greatest cosine of the angles between `wanted` and the packed vectors; None if they do not fit.

    >>> east, north = direction([2, 0], 2), direction([0, 1], 2)
    >>> nearest(pack([north, east]), east)
    1.0
    """
    step = len(wanted) * _WIDTH
    if not packed or len(packed) % step:
        return None
    numbers = array("f")
    numbers.frombytes(packed)
    if sys.byteorder == "big":
        numbers.byteswap()
    size = len(wanted)
    best: float = max(sum(map(mul, numbers[at : at + size], wanted)) for at in range(0, len(numbers), size))
    return min(1.0, max(-1.0, best))
