"""Other contents of a picture: PNG, JPEG, GIF and BMP."""

from __future__ import annotations

import io
import random
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from PIL import Image, ImageFilter, ImageOps, JpegImagePlugin, PngImagePlugin

from osgym_certify.ends.base import Content, GoldenFile, Must, distinct
from osgym_certify.ends.draw import by_name

MAX_PIXELS = 9_000_000
"""Largest picture that is decoded: a screen of 3840×2160 is a little smaller."""
_FORMATS = ("PNG", "JPEG", "GIF", "BMP")
_LOSSLESS = ("PNG", "GIF", "BMP")
_MODES = ("1", "L", "LA", "P", "RGB", "RGBA")
_PATCH = 16
_COMMENT = "another comment"
_KEPT: Mapping[str, Sequence[str]] = {
    "PNG": ("dpi", "exif", "icc_profile"),
    "JPEG": ("dpi", "exif", "icc_profile"),
    "BMP": ("dpi",),
}
"""What other pixels are saved with, as the golden ones are: names of Pillow's options, by format."""


@dataclass(frozen=True, slots=True)
class Picture:
    """Decoded picture of a golden file.

    Attributes:
        image: Its pixels.
        format: Pillow's name of the file's format.
        options: Options that save other pixels as the golden ones were saved.
        before: Pixels of the file before; None if the oracle made it or it was no picture.
    """

    image: Image.Image
    format: str
    options: Mapping[str, Any]
    before: Image.Image | None

    def save(self, image: Image.Image, format_: str | None = None, **options: Any) -> bytes:
        """Return an image as a file, of the golden format unless another is named.

        A mode or option that the format cannot store gives an empty file.
        """
        out = io.BytesIO()
        chosen = {**(self.options if format_ is None else {}), **options}
        try:
            image.save(out, format=format_ or self.format, **chosen)
        except (OSError, ValueError):
            return b""
        return out.getvalue()


def mutations(golden: GoldenFile, dice: random.Random) -> Iterator[Content]:
    """Yield pictures that look different, and the picture in another format under the same name."""
    picture = read(golden)
    if picture is None:
        return
    drawn, golden_look = by_name(dice), look(picture.image)
    made = []
    for name, change in _CHANGES.items():
        if picture.format not in _LOSSLESS and name in _LOST_IN_COMPRESSION:
            continue
        changed = change(picture, drawn(name))
        if changed is not None and look(changed) != golden_look:
            made.append(Content(name, Must.EARN_NOTHING, picture.save(changed)))
    made += [Content(name, Must.EARN_NOTHING, data) for name, data in _saved_otherwise(picture)]
    yield from (content for content in distinct(golden, made) if content.data)


def equivalents(golden: GoldenFile, dice: random.Random) -> Iterator[Content]:
    """Yield files with the same pixels.

    Colours are stored in another way only if the picture before had the golden mode: else the task may ask
    for the mode.
    """
    picture = read(golden)
    if picture is None:
        return
    made = [Content(name, Must.EARN_ALL, data) for name, data in _same_pixels(golden, picture)]
    wanted = look(picture.image)
    for content in distinct(golden, made):
        image = _decode(content.data)
        if image is not None and look(image) == wanted:
            yield content


def read(golden: GoldenFile) -> Picture | None:
    """Return a golden file as a picture; None for other files, moving and large pictures."""
    image = _decode(golden.data)
    if image is None or image.format is None:
        return None
    kept: dict[str, Any] = {key: image.info[key] for key in _KEPT.get(image.format, ()) if key in image.info}
    if image.format == "PNG":
        kept["compress_level"] = 1  # as the usual level takes four times as long
    if isinstance(image, JpegImagePlugin.JpegImageFile):
        kept["qtables"] = image.quantization
        sampling = JpegImagePlugin.get_sampling(image)
        if sampling >= 0:
            kept["subsampling"] = sampling
    before = None if golden.before is None else _decode(golden.before)
    return Picture(image, image.format, kept, before)


def _decode(data: bytes) -> Image.Image | None:
    try:
        image = Image.open(io.BytesIO(data), formats=_FORMATS)
        pixels = image.width * image.height
        if pixels > MAX_PIXELS or getattr(image, "n_frames", 1) > 1 or image.mode not in _MODES:
            return None
        image.load()
        if image.mode == "P" and not image.getpalette():
            return None
    except (
        Image.DecompressionBombError,
        Image.DecompressionBombWarning,
        OSError,
        SyntaxError,  # Pillow's error for a malformed PNG
        ValueError,
        KeyError,
        IndexError,
        struct.error,
    ):
        return None
    return image


def look(image: Image.Image) -> tuple[tuple[int, int], bytes]:
    """Return what is seen of a picture: its size and the colours of its pixels."""
    return image.size, image.convert("RGBA").tobytes()


def _opaque(image: Image.Image) -> bool:
    return image.convert("RGBA").getchannel("A").getextrema() == (255, 255)


def _filled(light: int) -> Callable[[Picture, random.Random], Image.Image]:
    def change(picture: Picture, dice: random.Random) -> Image.Image:
        return _with_colours(picture.image, lambda image: Image.new("RGB", image.size, (light,) * 3))

    return change


def _with_colours(image: Image.Image, change: Callable[[Image.Image], Image.Image]) -> Image.Image:
    """Return an image of the same mode with other colours; those of its palette, if it has one."""
    if image.mode == "P":
        made = image.copy()
        palette = Image.frombytes(
            "RGB", (len(image.getpalette() or []) // 3, 1), bytes(image.getpalette() or [])
        )
        made.putpalette(change(palette).tobytes())
        return made
    colours = change(image.convert("RGB"))
    if image.mode in ("RGBA", "LA"):
        made = colours.convert(image.mode[:-1])
        made.putalpha(image.getchannel("A"))
        return made
    return colours.convert(image.mode, dither=Image.Dither.NONE)


def _grey(picture: Picture, dice: random.Random) -> Image.Image:
    return _with_colours(picture.image, lambda image: image.convert("L").convert("RGB"))


def _inverted(picture: Picture, dice: random.Random) -> Image.Image:
    return _with_colours(picture.image, ImageOps.invert)


def _blurred(picture: Picture, dice: random.Random) -> Image.Image | None:
    if picture.image.mode in ("1", "P"):
        return None
    return picture.image.filter(ImageFilter.GaussianBlur(3))


def _transposed(method: Image.Transpose) -> Callable[[Picture, random.Random], Image.Image]:
    return lambda picture, dice: picture.image.transpose(method)


def _pixel_changed(picture: Picture, dice: random.Random) -> Image.Image:
    return _with_patch(picture.image, dice, 1)


def _square_changed(picture: Picture, dice: random.Random) -> Image.Image | None:
    return _with_patch(picture.image, dice, _PATCH) if min(picture.image.size) > _PATCH else None


def _with_patch(image: Image.Image, dice: random.Random, side: int) -> Image.Image:
    """Return the image with a square, at a drawn place, of a colour far from the one there."""
    left, top = dice.randrange(image.width - side + 1), dice.randrange(image.height - side + 1)
    seen = image.convert("RGBA").getpixel((left, top))
    assert isinstance(seen, tuple)
    colour = tuple(0 if channel > 127 else 255 for channel in seen[:3])
    made = image.copy()
    fill: Any = (*colour, 255)
    if image.mode == "P":
        fill = _nearest(image, colour)
    elif image.mode in ("1", "L", "LA"):
        light = 0 if sum(seen[:3]) > 3 * 127 else 255
        fill = (light, 255) if image.mode == "LA" else light
    elif image.mode == "RGB":
        fill = colour
    made.paste(fill, (left, top, left + side, top + side))
    return made


def _nearest(image: Image.Image, colour: tuple[int, ...]) -> int:
    """Return the entry of the palette that is nearest to a colour."""
    palette = image.getpalette() or [0, 0, 0]
    entries = range(len(palette) // 3)
    return min(entries, key=lambda one: sum(abs(palette[3 * one + c] - colour[c]) for c in range(3)))


def _column_cut(picture: Picture, dice: random.Random) -> Image.Image | None:
    width, height = picture.image.size
    return picture.image.crop((0, 0, width - 1, height)) if width > 1 else None


def _row_cut(picture: Picture, dice: random.Random) -> Image.Image | None:
    width, height = picture.image.size
    return picture.image.crop((0, 0, width, height - 1)) if height > 1 else None


def _wider(picture: Picture, dice: random.Random) -> Image.Image:
    width, height = picture.image.size
    return picture.image.resize((width + 1, height))


def _half_transparent(picture: Picture, dice: random.Random) -> Image.Image | None:
    if picture.format != "PNG" or picture.image.mode not in ("RGB", "RGBA"):
        return None
    made = picture.image.convert("RGBA")
    made.putalpha(made.getchannel("A").point(lambda light: light // 2))
    return made


def _size_put_back(picture: Picture, dice: random.Random) -> Image.Image | None:
    before = picture.before
    if before is None or before.size == picture.image.size:
        return None
    return picture.image.resize(before.size)


def _saved_otherwise(picture: Picture) -> Iterator[tuple[str, bytes]]:
    image, before = picture.image, picture.before
    if before is not None and before.mode != image.mode:
        yield "colour mode put back", picture.save(in_mode(image, before.mode), picture.format)
    if picture.format == "JPEG":
        yield "saved as PNG under the same name", picture.save(in_mode(image, "RGB"), "PNG")
        yield "saved in poor quality", picture.save(image, "JPEG", quality=3)
    else:
        yield "saved as JPEG under the same name", picture.save(in_mode(image, "RGB"), "JPEG", quality=90)


def in_mode(image: Image.Image, mode: str) -> Image.Image:
    """Return an image in one of the modes that are read; all but those with an alpha channel are opaque."""
    colours = image.convert("RGBA")
    if mode in ("RGBA", "LA"):
        return colours.convert(mode)
    opaque = colours.convert("RGB")
    return opaque.quantize(256) if mode == "P" else opaque.convert(mode)


def _same_pixels(golden: GoldenFile, picture: Picture) -> Iterator[tuple[str, bytes]]:
    image = picture.image
    noted = {**picture.options, "dpi": (72, 72)}
    if picture.format == "JPEG":
        comment = _COMMENT.encode()
        segment = b"\xff\xfe" + struct.pack(">H", len(comment) + 2) + comment
        yield "comment added", golden.data[:2] + segment + golden.data[2:]
    elif picture.format == "GIF":
        yield "comment added", picture.save(image, comment=_COMMENT)
        yield "saved with interlacing", picture.save(image, interlace=1)
        yield "saved without interlacing", picture.save(image, interlace=0)
    elif picture.format == "BMP":
        yield "other resolution noted", picture.save(image, **noted)
    else:
        note = PngImagePlugin.PngInfo()
        note.add_text("Comment", _COMMENT)
        yield "saved with other compression", picture.save(image, compress_level=2)
        yield "comment added", picture.save(image, pnginfo=note)
        yield "other resolution noted", picture.save(image, **noted)
        yield from _other_modes(picture)


def _other_modes(picture: Picture) -> Iterator[tuple[str, bytes]]:
    image, before = picture.image, picture.before
    if image.mode == "RGB" and _opaque(image):
        yield "opaque alpha channel added", picture.save(in_mode(image, "RGBA"))
    elif image.mode == "RGBA" and _opaque(image):
        yield "opaque alpha channel removed", picture.save(in_mode(image, "RGB"))
    if before is None or before.mode != image.mode:
        return
    if image.mode == "P":
        yield "palette replaced by colours", picture.save(in_mode(image, "RGB" if _opaque(image) else "RGBA"))
    elif image.mode == "RGB" and (counted := image.getcolors(256)):
        yield (
            "colours replaced by a palette",
            picture.save(in_mode(image, "RGB").quantize(len(counted), dither=Image.Dither.NONE)),
        )


_CHANGES: Mapping[str, Callable[[Picture, random.Random], Image.Image | None]] = {
    "all pixels black": _filled(0),
    "all pixels white": _filled(255),
    "flipped left to right": _transposed(Image.Transpose.FLIP_LEFT_RIGHT),
    "flipped top to bottom": _transposed(Image.Transpose.FLIP_TOP_BOTTOM),
    "turned by 180 degrees": _transposed(Image.Transpose.ROTATE_180),
    "one pixel changed": _pixel_changed,
    "one small square changed": _square_changed,
    "one column of pixels cut off": _column_cut,
    "one row of pixels cut off": _row_cut,
    "scaled to one pixel more": _wider,
    "colours replaced by greys": _grey,
    "colours inverted": _inverted,
    "blurred": _blurred,
    "made half transparent": _half_transparent,
    "size put back": _size_put_back,
}
_LOST_IN_COMPRESSION = frozenset({"one pixel changed"})
"""Changes that the compression of JPEG spreads over other pixels."""
