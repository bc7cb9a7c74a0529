"""Other contents of pictures: what is seen differs as the name says, or not at all."""

from __future__ import annotations

import io
import random
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageChops, ImageOps

from osgym_certify.ends import picture
from osgym_certify.ends.base import GoldenFile, Must

SIZE = (40, 30)
ENDINGS = {"PNG": "png", "JPEG": "jpg", "GIF": "gif", "BMP": "bmp"}
KINDS = [
    ("PNG", "RGB"),
    ("PNG", "RGBA"),
    ("PNG", "L"),
    ("PNG", "LA"),
    ("PNG", "P"),
    ("PNG", "1"),
    ("JPEG", "RGB"),
    ("JPEG", "L"),
    ("GIF", "P"),
    ("BMP", "RGB"),
    ("BMP", "P"),
]


def image_of(mode: str, size: tuple[int, int] = SIZE) -> Image.Image:
    """Picture without symmetry, with few colours."""
    made = Image.new("RGB", size, (30, 90, 200))
    made.paste((250, 220, 10), (0, 0, size[0] // 2, size[1] // 3))
    made.paste((200, 30, 60), (5, size[1] // 2, size[0] - 12, size[1] - 2))
    if mode in ("RGBA", "LA"):
        made.putalpha(Image.linear_gradient("L").resize(size))
    return made.quantize(8) if mode == "P" else made.convert(mode)


def file_of(image: Image.Image, format_: str, **options: Any) -> bytes:
    """The picture as a file."""
    out = io.BytesIO()
    image.save(out, format_, **options)
    return out.getvalue()


def golden_of(format_: str, mode: str, before: bytes | None = None) -> GoldenFile:
    """Golden file of a picture."""
    return GoldenFile(f"/home/user/a.{ENDINGS[format_]}", file_of(image_of(mode), format_), before)


def mutants(golden: GoldenFile, seed: int = 1) -> dict[str, Image.Image]:
    """Mutated pictures by name."""
    made = {}
    for one in picture.mutations(golden, random.Random(seed)):
        assert one.must is Must.EARN_NOTHING and one.name not in made
        made[one.name] = Image.open(io.BytesIO(one.data))
        made[one.name].load()
    return made


def rgba(image: Image.Image) -> Image.Image:
    """The colours that are seen."""
    return image.convert("RGBA")


def differing(one: Image.Image, other: Image.Image) -> tuple[int, int, int, int] | None:
    """Rectangle in which two pictures differ."""
    return ImageChops.difference(rgba(one), rgba(other)).getbbox(alpha_only=False)


@pytest.mark.parametrize(("format_", "mode"), KINDS)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_mutations_differ_as_their_names_say(format_: str, mode: str, seed: int) -> None:
    """Geometry, colours and single pixels of pictures of every kind."""
    golden = golden_of(format_, mode)
    image = Image.open(io.BytesIO(golden.data))
    made = mutants(golden, seed)
    for name, changed in made.items():
        if "under the same name" not in name:
            assert changed.format == image.format
            assert changed.mode == image.mode or name == "made half transparent", name
    if format_ != "JPEG":
        assert not differing(made["flipped left to right"], ImageOps.mirror(image))
        assert not differing(made["flipped top to bottom"], ImageOps.flip(image))
        assert not differing(made["turned by 180 degrees"], image.rotate(180))
        assert not differing(made["one column of pixels cut off"], image.crop((0, 0, SIZE[0] - 1, SIZE[1])))
        assert not differing(made["one row of pixels cut off"], image.crop((0, 0, SIZE[0], SIZE[1] - 1)))
        left, top, right, bottom = differing(made["one pixel changed"], image) or (0, 0, 0, 0)
        assert (right - left, bottom - top) == (1, 1)
        before, after = (
            rgba(image).getpixel((left, top)),
            rgba(made["one pixel changed"]).getpixel((left, top)),
        )
        assert isinstance(before, tuple) and isinstance(after, tuple)
        assert max(abs(one - other) for one, other in zip(before, after, strict=True)) > 100
    assert made["scaled to one pixel more"].size == (SIZE[0] + 1, SIZE[1])
    left, top, right, bottom = differing(made["one small square changed"], image) or (0, 0, 0, 0)
    assert 0 < right - left <= 48 and 0 < bottom - top <= 48
    if mode != "1":
        colours = {band[:3] for _, band in rgba(made["all pixels black"]).getcolors() or []}
        assert colours == {(0, 0, 0)}
        colours = {band[:3] for _, band in rgba(made["all pixels white"]).getcolors() or []}
        assert all(min(colour) > 250 for colour in colours)
    assert "colours inverted" in made
    assert ("colours replaced by greys" in made) is (mode in ("RGB", "RGBA", "P"))


def test_files_of_another_format_and_quality() -> None:
    """The picture is the same, but the file is of another format than its name, or poor."""
    made = mutants(golden_of("PNG", "RGB"))
    assert made["saved as JPEG under the same name"].format == "JPEG"
    made = mutants(golden_of("JPEG", "RGB"))
    assert made["saved as PNG under the same name"].format == "PNG"
    assert made["saved in poor quality"].format == "JPEG"


def test_transparency_size_and_mode() -> None:
    """Half the opacity, and what the oracle changed put back alone."""
    before = file_of(image_of("RGB", (80, 60)), "PNG")
    made = mutants(golden_of("PNG", "L", before))
    assert made["size put back"].size == (80, 60) and made["size put back"].mode == "L"
    assert made["colour mode put back"].size == SIZE and made["colour mode put back"].mode == "RGB"
    made = mutants(golden_of("PNG", "RGB", before))
    assert made["made half transparent"].getchannel("A").getextrema() == (127, 127)
    assert "colour mode put back" not in made
    assert {"size put back", "colour mode put back"}.isdisjoint(mutants(golden_of("PNG", "RGB")))


@pytest.mark.parametrize(
    ("format_", "mode", "names"),
    [
        (
            "PNG",
            "RGB",
            ["saved with other compression", "opaque alpha channel added", "colours replaced by a palette"],
        ),
        ("PNG", "P", ["palette replaced by colours", "comment added", "other resolution noted"]),
        ("PNG", "L", ["saved with other compression"]),
        ("JPEG", "RGB", ["comment added"]),
        ("GIF", "P", ["comment added"]),
        ("BMP", "RGB", ["other resolution noted"]),
    ],
)
def test_equivalents_look_the_same(format_: str, mode: str, names: list[str]) -> None:
    """Compression, notes and the way of storing colours."""
    golden = golden_of(format_, mode, file_of(image_of(mode, (9, 9)), format_))
    made = {one.name: one.data for one in picture.equivalents(golden, random.Random(1))}
    assert set(names) <= made.keys()
    image = Image.open(io.BytesIO(golden.data))
    for data in made.values():
        other = Image.open(io.BytesIO(data))
        assert other.format == image.format and other.size == image.size and not differing(image, other)
        assert data != golden.data


def test_a_mode_that_the_oracle_changed_has_no_equivalent() -> None:
    """The task may ask for the palette."""
    golden = golden_of("PNG", "P", file_of(image_of("RGB"), "PNG"))
    names = {one.name for one in picture.equivalents(golden, random.Random(1))}
    assert names and "palette replaced by colours" not in names


def test_same_draws() -> None:
    """The same generator state gives the same files."""
    golden = golden_of("PNG", "RGBA")
    one, other = (list(picture.mutations(golden, random.Random(7))) for _ in range(2))
    assert one == other and len(one) > 10


def chunk(kind: bytes, data: bytes) -> bytes:
    """A chunk of a PNG file."""
    return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")


def bomb(width: int, height: int) -> bytes:
    """A PNG file of a few bytes that claims to be large."""
    head = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes([8, 2, 0, 0, 0])
    pixels = zlib.compress(bytes(100_000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def moving() -> bytes:
    """A GIF file of two frames."""
    return file_of(image_of("P"), "GIF", save_all=True, append_images=[image_of("P").rotate(180)])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"text",
        bomb(3_001, 3_000),
        bomb(20_000, 20_000),
        bomb(2**31 - 1, 2**31 - 1),
        moving(),
        file_of(image_of("RGB"), "PNG")[:-60],
        file_of(image_of("RGB"), "JPEG")[:-60],
        file_of(image_of("RGB"), "TIFF"),
        file_of(image_of("RGB").convert("CMYK"), "JPEG"),
    ],
    ids=range(10),
)
def test_other_files_yield_nothing(data: bytes) -> None:
    """Pictures that are too large, moving, cut off or of other formats."""
    for variants in (picture.mutations, picture.equivalents):
        assert list(variants(GoldenFile("/a.png", data), random.Random(1))) == []


@given(
    st.sampled_from(KINDS),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=5),
    st.booleans(),
)
def test_damaged_pictures_never_raise(
    kind: tuple[str, str], damage: list[tuple[int, int]], as_before: bool
) -> None:
    """A picture with wrong bytes is read or not, and yields pictures or nothing."""
    sound = file_of(image_of(kind[1], (12, 9)), kind[0])
    data = bytearray(sound)
    for place, byte in damage:
        data[place % len(data)] = byte
    golden = GoldenFile("/a", sound, bytes(data)) if as_before else GoldenFile("/a", bytes(data))
    for variants in (picture.mutations, picture.equivalents):
        assert all(one.data != golden.data for one in variants(golden, random.Random(1)))
