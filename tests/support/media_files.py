"""Sounds, pictures and presentations for tests of metrics and getters; needs numpy for sounds."""

from __future__ import annotations

import io
import wave
import zipfile
from collections.abc import Mapping
from typing import Any

from PIL import Image, ImageDraw

from osgym_osworld.formats.sound import RATE_HZ

SECONDS = 4


def _times() -> Any:
    import numpy as np

    return np.arange(RATE_HZ * SECONDS) / RATE_HZ


def melody() -> Any:
    """A rising tone with another that comes and goes; float64 samples."""
    import numpy as np

    times = _times()
    rising = 0.5 * np.sin(2 * np.pi * (220 + 60 * times) * times)
    return rising + 0.2 * np.sin(2 * np.pi * 880 * times) * (np.sin(4 * np.pi * times) > 0)


def dying_tone() -> Any:
    """Another sound."""
    import numpy as np

    times = _times()
    return 0.5 * np.sin(2 * np.pi * 440 * times) * np.exp(-times)


def wav(samples: Any, rate_hz: int = RATE_HZ) -> bytes:
    """Samples of −1 to 1 as a wav file of 16 bits."""
    import numpy as np

    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate_hz)
        file.writeframes((np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes())
    return buffer.getvalue()


def album_picture() -> bytes:
    """A small picture as a PNG file."""
    image = Image.linear_gradient("L").resize((64, 48)).convert("RGB")
    ImageDraw.Draw(image).ellipse((5, 5, 50, 40), fill="red")
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def deck(sound: str = "", picture: str = "", parts: Mapping[str, bytes] | None = None) -> bytes:
    """What matters of a pptx file of one slide, with a sound or a background picture at these targets."""
    relations = ""
    for name, kind, target in (("rId1", "audio", sound), ("rId2", "image", picture)):
        if target:
            mode = ' TargetMode="External"' if "://" in target else ""
            relations += f'<Relationship Id="{name}" Type="http://x/{kind}" Target="{target}"{mode}/>'
    office = "http://schemas.openxmlformats.org"
    slide = (
        f'<p:sld xmlns:p="{office}/presentationml/2006/main" xmlns:a="{office}/drawingml/2006/main"'
        f' xmlns:r="{office}/officeDocument/2006/relationships"><p:cSld><p:bg><p:bgPr><a:blipFill>'
        '<a:blip r:embed="rId2"/></a:blipFill></p:bgPr></p:bg></p:cSld></p:sld>'
    )
    spaces = f'xmlns="{office}/package/2006/relationships"'
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("ppt/slides/slide1.xml", slide)
        archive.writestr(
            "ppt/slides/_rels/slide1.xml.rels", f"<Relationships {spaces}>{relations}</Relationships>"
        )
        for part, data in (parts or {}).items():
            archive.writestr(part, data)
    return buffer.getvalue()
