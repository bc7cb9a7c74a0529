"""Similarity of two sounds: by the cepstrum of each moment, the moments aligned in time.

Mel-frequency cepstral coefficients as librosa computes them by default (22,050 Hz, windows of 2048 samples
every 512, 128 bands on Slaney's scale, 20 coefficients), each scaled to its largest; the moments are aligned
by FastDTW (Salvador and Chan, 2007) of radius 1 under the cosine distance.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

RATE_HZ = 22_050
WINDOW, HOP, BANDS, COEFFICIENTS = 2048, 512, 128, 20
_FLOOR, _RANGE_DB = 1e-10, 80.0
_TINY = 1e-15
_RADIUS = 1
_WINDOWS_AT_ONCE = 2048


def likeness(a: Any, b: Any) -> float:
    """Return the similarity of two sounds, 0 to 1: e to the negative mean distance along their alignment.

    Args:
        a: Samples, float32 in −1 to 1, mono at `RATE_HZ`; one at least.
        b: The same.
    """
    import numpy as np

    distance, length = _aligned(_unit(_cepstrum(a)), _unit(_cepstrum(b)))
    return float(np.exp(-distance / length))


def _cepstrum(samples: Any) -> Any:
    """Coefficients × moments, each coefficient scaled to its largest magnitude over time."""
    import numpy as np

    padded = np.pad(samples.astype(np.float32), WINDOW // 2)
    count = 1 + (len(padded) - WINDOW) // HOP
    hann = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)).astype(np.float32)
    bands, moments = _mel_bands(), []
    for start in range(0, count, _WINDOWS_AT_ONCE):
        places = np.arange(start, min(start + _WINDOWS_AT_ONCE, count))
        frames = padded[places[:, None] * HOP + np.arange(WINDOW)]
        moments.append(bands @ (np.abs(np.fft.rfft(frames * hann)) ** 2).T)
    power = np.concatenate(moments, axis=1)
    decibels = 10 * np.log10(np.maximum(power, _FLOOR))
    decibels = np.maximum(decibels, decibels.max() - _RANGE_DB)
    k, n = np.arange(COEFFICIENTS)[:, None], np.arange(BANDS)[None, :]
    transform = np.sqrt(2 / BANDS) * np.cos(np.pi * k * (2 * n + 1) / (2 * BANDS))
    transform[0] /= np.sqrt(2)
    found = transform @ decibels
    largest = np.abs(found).max(axis=1, keepdims=True)
    return found / np.where(largest < np.finfo(np.float32).tiny, 1, largest)


def _mel_bands() -> Any:
    """Triangles over the spectrum, bands × frequencies, each of the same area."""
    import numpy as np

    frequencies = np.linspace(0, RATE_HZ / 2, WINDOW // 2 + 1)
    edges = _hertz(np.linspace(0, _mel(RATE_HZ / 2), BANDS + 2))
    widths = np.diff(edges)
    ramps = edges[:, None] - frequencies[None, :]
    rising, falling = -ramps[:-2] / widths[:-1, None], ramps[2:] / widths[1:, None]
    return np.maximum(0, np.minimum(rising, falling)) * (2 / (edges[2:] - edges[:-2]))[:, None]


_LINEAR_HZ, _BREAK_HZ = 200 / 3, 1000.0
"""Slaney's scale: a mel is so many hertz below the break, and grows by a constant ratio above it."""


def _step() -> float:
    import numpy as np

    return float(np.log(6.4) / 27)


def _mel(hertz: float) -> float:
    import numpy as np

    return float(_BREAK_HZ / _LINEAR_HZ + np.log(hertz / _BREAK_HZ) / _step())


def _hertz(mels: Any) -> Any:
    import numpy as np

    least = _BREAK_HZ / _LINEAR_HZ
    return np.where(mels < least, mels * _LINEAR_HZ, _BREAK_HZ * np.exp(_step() * (mels - least)))


def _unit(vectors: Any) -> Any:
    """Moments × coefficients, each moment of length 1; one of length 0 stays."""
    import numpy as np

    lengths = np.sqrt((vectors**2).sum(axis=0))
    return np.stack([vectors.T, np.broadcast_to(lengths[:, None], vectors.T.shape)])


def _distances(one: Any, others: Any) -> Any:
    """Return the cosine distance of one moment to several."""
    import numpy as np

    lengths = one[1][0] * others[1][:, 0]
    return 1 - np.where(lengths > _TINY, (others[0] @ one[0]) / np.maximum(lengths, _TINY), 0.0)


def _aligned(a: Any, b: Any) -> tuple[float, int]:
    """Return the distance along the best path that was found, and the path's length."""
    distance, path = _fast(a, b)
    return distance, len(path)


Path = list[tuple[int, int]]


def _fast(a: Any, b: Any) -> tuple[float, Path]:
    """Align halved sounds, then look near that path only."""
    rows, columns = a.shape[1], b.shape[1]
    if min(rows, columns) < _RADIUS + 2:
        return _align(a, b, [(0, columns)] * rows)
    _, coarse = _fast(_halved(a), _halved(b))
    return _align(a, b, _near(coarse, rows, columns))


def _halved(vectors: Any) -> Any:
    import numpy as np

    values = vectors[0]
    even = len(values) - len(values) % 2
    return _unit(((values[0:even:2] + values[1:even:2]) / 2).T.astype(np.float64))


def _near(path: Iterable[tuple[int, int]], rows: int, columns: int) -> list[tuple[int, int]]:
    """Return for each row the columns (from, to) within the radius of a path of half the size."""
    first, last = [columns] * rows, [0] * rows
    for i, j in path:
        low, high = max(0, 2 * (j - _RADIUS)), min(columns, 2 * (j + _RADIUS) + 2)
        for row in range(max(0, 2 * (i - _RADIUS)), min(rows, 2 * (i + _RADIUS) + 2)):
            first[row], last[row] = min(first[row], low), max(last[row], high)
    return list(zip(first, last, strict=True))


def _align(a: Any, b: Any, window: list[tuple[int, int]]) -> tuple[float, Path]:
    """Return the best path within a window; each step goes on in one sound or in both."""
    infinite = float("inf")
    costs: list[list[float]] = []
    for i, (start, end) in enumerate(window):
        steps = _distances(a[:, i], b[:, start:end]).tolist()
        row: list[float] = []
        before, shift = (costs[-1], window[i - 1][0]) if i else ([], 0)
        for j in range(start, end):
            at = j - shift
            above = before[at] if 0 <= at < len(before) else infinite
            across = before[at - 1] if 0 < at <= len(before) else infinite
            left = row[-1] if row else infinite
            least = min(above, left, across)
            row.append(steps[j - start] + (0.0 if i == j == 0 else least))
        costs.append(row)
    return costs[-1][-1], _way_back(costs, window)


def _way_back(costs: list[list[float]], window: list[tuple[int, int]]) -> Path:
    def cost(i: int, j: int) -> float:
        known = i >= 0 and window[i][0] <= j < window[i][1]
        return costs[i][j - window[i][0]] if known else float("inf")

    i, j = len(window) - 1, window[-1][1] - 1
    path = [(i, j)]
    while (i, j) != (0, 0):
        i, j = min(((i - 1, j), (i, j - 1), (i - 1, j - 1)), key=lambda place: cost(*place))
        path.append((i, j))
    return path[::-1]
