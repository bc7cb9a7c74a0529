"""Structural similarity of two images: the mean structural similarity index.

As Wang, Bovik, Sheikh and Simoncelli (2004) define it with a uniform window of 7 × 7 pixels, sample
covariances and data of one byte; what scikit-image computes by default, without its gigabytes of company.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from PIL import Image

WINDOW = 7
_K1, _K2, _RANGE = 0.01, 0.03, 255
_BAND_PIXELS = 1 << 17
"""Pixels that are looked at together, which bounds the memory: some 100 bytes for each."""


def structural_similarity(a: Image.Image, b: Image.Image) -> float:
    """Return the mean over all places and channels, −1 to 1; 1 for equal images.

    Args:
        a: An image of one or more bands of bytes (``L``, ``RGB``).
        b: Another of the same size and mode, 7 × 7 pixels at least.
    """
    assert a.size == b.size and a.mode == b.mode and min(a.size) >= WINDOW
    means = [_of_channel(x, y) for x, y in zip(a.split(), b.split(), strict=True)]
    return float(sum(means) / len(means))


def _of_channel(a: Image.Image, b: Image.Image) -> float:
    import numpy as np

    x, y = np.asarray(a), np.asarray(b)
    rows, columns = x.shape
    step = max(1, _BAND_PIXELS // columns)
    total, places = 0.0, (rows - WINDOW + 1) * (columns - WINDOW + 1)
    for top in range(0, rows - WINDOW + 1, step):
        band = slice(top, min(top + step + WINDOW - 1, rows))
        total += float(_index(x[band], y[band]).sum())
    return float(total / places)


def _index(x: Any, y: Any) -> Any:
    """Return the index at each place of a window within two arrays of bytes (rows × columns)."""
    import numpy as np

    x, y = x.astype(np.int32), y.astype(np.int32)
    count = WINDOW * WINDOW
    mean_x, mean_y = _window_sums(x) / count, _window_sums(y) / count
    correction = count / (count - 1)
    var_x = correction * (_window_sums(x * x) / count - mean_x * mean_x)
    var_y = correction * (_window_sums(y * y) / count - mean_y * mean_y)
    covariance = correction * (_window_sums(x * y) / count - mean_x * mean_y)
    c1, c2 = (_K1 * _RANGE) ** 2, (_K2 * _RANGE) ** 2
    above = (2 * mean_x * mean_y + c1) * (2 * covariance + c2)
    return above / ((mean_x * mean_x + mean_y * mean_y + c1) * (var_x + var_y + c2))


def _window_sums(values: Any) -> Any:
    """Return the sums over each window that lies within the array, exact (49 × 255² fit)."""
    rows, columns = (length - WINDOW + 1 for length in values.shape)
    down = sum((values[i : i + rows] for i in range(1, WINDOW)), values[:rows])
    return sum((down[:, i : i + columns] for i in range(1, WINDOW)), down[:, :columns])
