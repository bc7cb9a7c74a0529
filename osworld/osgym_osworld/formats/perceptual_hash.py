"""Perceptual hash of a picture: 64 bits, of which similar pictures differ in few.

The phash that is common (Zauner, 2010): the lowest 8 × 8 frequencies of the picture in 32 × 32 greys, each
above the median or not.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from PIL import Image

SIDE, LOW = 32, 8


def perceptual_hash(image: Image.Image) -> int:
    """Return the hash of an image of any mode and size."""
    import numpy as np
    from PIL import Image as Pictures

    small = image.convert("L").resize((SIDE, SIDE), Pictures.Resampling.LANCZOS)
    cosines = _cosines()
    frequencies = (cosines @ np.asarray(small, dtype=np.float64) @ cosines.T)[:LOW, :LOW]
    bits = frequencies > np.median(frequencies)
    return int("".join("1" if bit else "0" for bit in bits.ravel()), 2)


def hash_distance(a: Image.Image, b: Image.Image) -> int:
    """Return the number of different bits in two images' hashes, 0 to 64."""
    return (perceptual_hash(a) ^ perceptual_hash(b)).bit_count()


@cache
def _cosines() -> Any:
    """Return the matrix of the discrete cosine transform (type II) of `SIDE` values."""
    import numpy as np

    k, n = np.arange(SIDE)[:, None], np.arange(SIDE)[None, :]
    return 2 * np.cos(np.pi * k * (2 * n + 1) / (2 * SIDE))
