"""Text in a picture, read by Tesseract as a library: a confined process can start no program.

Debian's `tesseract-ocr` has it. The model is loaded by `warm_up`, before the evaluator shuts itself in.
"""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from PIL import Image

LANGUAGE = "eng"
_MODELS = ("/usr/share/tesseract-ocr/*/tessdata", "/usr/share/tessdata", "/usr/local/share/tessdata")
_UNIFORM_BLOCKS, _ANYWHERE = 3, 11
"""Page segmentation modes (tesseract's `PageSegMode`): found columns and lines, and text wherever it is."""
_DPI = 192
_SCALE = 2
"""Screens have 96 dots an inch, and Tesseract was trained on scans of twice that and more."""
_MAX_SIDE = 8000


class Reader:
    """Tesseract with its model loaded. Children of a fork have it as well."""

    def __init__(self) -> None:
        """Load library and model.

        Raises:
            OSError: one of them is not there, or does not fit the other.
        """
        library, models = ctypes.util.find_library("tesseract"), _models()
        if library is None or models is None:
            raise OSError("Tesseract is not installed")
        self._api = ctypes.CDLL(library)
        self._api.TessBaseAPICreate.restype = ctypes.c_void_p
        self._api.TessBaseAPIGetUTF8Text.restype = ctypes.c_void_p
        self._handle = ctypes.c_void_p(self._api.TessBaseAPICreate())
        if self._api.TessBaseAPIInit3(self._handle, str(models).encode(), LANGUAGE.encode()) != 0:
            raise OSError(f"Tesseract cannot read its model in {models}")
        self._api.TessBaseAPISetVariable(self._handle, b"debug_file", b"/dev/null")

    def read(self, image: Image.Image) -> list[str]:
        """Return the text of a picture as found in each of two modes, words apart by one blank."""
        scale = min(_SCALE, _MAX_SIDE / max(image.size))
        size = max(1, round(image.width * scale)), max(1, round(image.height * scale))
        grey = image.convert("L").resize(size)
        return [self._read(grey, mode) for mode in (_UNIFORM_BLOCKS, _ANYWHERE)]

    def _read(self, grey: Image.Image, mode: int) -> str:
        self._api.TessBaseAPISetPageSegMode(self._handle, mode)
        data = grey.tobytes()
        self._api.TessBaseAPISetImage(self._handle, data, grey.width, grey.height, 1, grey.width)
        self._api.TessBaseAPISetSourceResolution(self._handle, _DPI)
        found = self._api.TessBaseAPIGetUTF8Text(self._handle)
        if not found:
            return ""
        text = ctypes.c_void_p(found)
        try:
            return " ".join(ctypes.string_at(text).decode("utf-8", "replace").split())
        finally:
            self._api.TessDeleteText(text)


@cache
def reader() -> Reader:
    """Return this process's reader, loaded at the first call."""
    return Reader()


@cache
def is_there() -> bool:
    """Return whether the library and its model are installed; neither is loaded."""
    return _models() is not None and ctypes.util.find_library("tesseract") is not None


class NeedsTesseract:
    """A metric's ``unsupported`` that names Tesseract if it is not installed."""

    required = ("program Tesseract",)

    def __call__(self, options: Mapping[str, Any]) -> list[str]:
        return [] if is_there() else ["program Tesseract (apt install tesseract-ocr)"]


def _models() -> Path | None:
    found = sorted(
        place
        for pattern in _MODELS
        for place in Path("/").glob(pattern.lstrip("/"))
        if (place / f"{LANGUAGE}.traineddata").is_file()
    )
    return found[-1] if found else None
