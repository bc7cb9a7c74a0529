"""Import of all metrics before the evaluator shuts itself in: a confined child can import nothing."""

from __future__ import annotations

import contextlib
import io
import sys
import zipfile

from PIL import Image

from osgym_host.tasks.evaluator.registry import METRICS, READERS
from osgym_protocol.plugins import PluginError


def warm_up() -> dict[str, str]:
    """Import every installed metric and reader, and call the ``warm_up`` of each module that has one.

    Returns:
        Metrics that cannot run on this machine, each with the reason.

    Raises:
        DuplicatePlugin: Two distributions register a metric, or a reader, of the same name.
    """
    _warm_up_parsers()
    lacking: dict[str, str] = {}
    reasons: dict[str, str] = {}
    for name in METRICS:
        try:
            module = METRICS[name].function.__module__
        except PluginError as error:
            lacking[name] = str(error)
            continue
        if module not in reasons:
            reasons[module] = _warm_up_module(module)
        if reasons[module]:
            lacking[name] = reasons[module]
    for name in READERS:
        with contextlib.suppress(PluginError):  # the host refuses tasks that need it
            if (module := READERS[name].__module__) not in reasons:
                reasons[module] = _warm_up_module(module)
    return lacking


def _warm_up_module(name: str) -> str:
    """Call a module's ``warm_up`` if there is one; return why it failed, else an empty text."""
    function = getattr(sys.modules[name], "warm_up", None)
    if function is None:
        return ""
    try:
        function()
    except OSError as error:  # e.g. a model that does not fit the version of its library
        return str(error)
    except Exception as error:  # noqa: BLE001 - a module of others must not end the metrics of all
        return f"{name}.warm_up failed: {error!r}"
    return ""


def _warm_up_parsers() -> None:
    """Use the parsers of the evaluator itself once, so that their late imports are done."""
    for image_format in ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP"):
        buffer = io.BytesIO()
        Image.new("RGB", (2, 2)).save(buffer, image_format)
        Image.open(io.BytesIO(buffer.getvalue())).load()
    for method in (zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        with zipfile.ZipFile(io.BytesIO(), "w", method) as archive:
            archive.writestr("a", b"a")
