"""From the captured frame to the image that was asked for."""

from __future__ import annotations

from osgym_guest._native import Display
from osgym_guest.options import ObserveOptions


class ImagingMissing(RuntimeError):
    """An encoding or size was asked for that needs Pillow, and it is not installed."""


def encode(display: Display, options: ObserveOptions) -> tuple[bytes, int, int]:
    """The last captured frame as an image file, its width and height.

    Raises:
        ImagingMissing: Pillow is needed and absent.
    """
    screen = display.size()
    x, y, width, height = options.region or (0, 0, *screen)
    size = options.size or (width, height)
    if options.format == "png" and size == (width, height):
        whole = (width, height) == screen
        return (display.png() if whole else display.png(x, y, width, height)), width, height
    try:
        from PIL import Image
    except ImportError as exc:
        raise ImagingMissing(f"{options.format} of size {size} needs Pillow") from exc
    from io import BytesIO

    pixels = display.pixels(x, y, width, height)
    image = Image.frombuffer("RGB", (width, height), pixels, "raw", "BGRX", 0, 1)
    if size != (width, height):
        image = image.resize(size, Image.Resampling.LANCZOS, reducing_gap=2.0)
    out = BytesIO()
    if options.format == "png":
        image.save(out, "PNG", compress_level=1)
    elif options.format == "jpeg":
        image.save(out, "JPEG", quality=options.quality)
    else:
        image.save(out, "WEBP", quality=options.quality, method=2)
    return out.getvalue(), size[0], size[1]
