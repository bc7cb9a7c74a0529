"""Images that a hostile guest made end as one typed error, before any of their pixels is decoded."""

from __future__ import annotations

import io
import resource
import struct
import subprocess
import sys
import warnings
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from osgym_protocol.codes import ImageFormat
from osgym_protocol.limits import MAX_IMAGE_PIXELS
from osgym_protocol.options import ObserveOptions
from osgym_sdk import BadFrame, Observation, OSGymError
from osgym_sdk._episode.frames import FrameCache
from osgym_sdk.wire import FrameInfo, StepAnswer
from osgym_sdk.wire import Observation as Meta

SIZE = (64, 48)
OTHERS = ("GIF", "BMP", "TIFF", "PPM", "ICO", "EPS", "PCX", "TGA")
KINDS = (ImageFormat.PNG, ImageFormat.JPEG, ImageFormat.WEBP)


def observation(
    data: bytes, kind: ImageFormat = ImageFormat.PNG, size: tuple[int, int] = SIZE
) -> Observation:
    """What a client gets when a host passes this image on."""
    return Observation(StepAnswer(Meta(FrameInfo("h", kind, *size, size)), 1), data)


def image(kind: str, size: tuple[int, int] = SIZE) -> bytes:
    """A real image file."""
    out = io.BytesIO()
    Image.new("RGB", size, (9, 8, 7)).save(out, kind)
    return out.getvalue()


def png_claiming(width: int, height: int) -> bytes:
    """A small PNG that unpacks to as many rows as it claims."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    packer = zlib.compressobj(9)
    rows = b"".join(packer.compress(bytes(width * 3 + 1)) for _ in range(height)) + packer.flush()
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


@pytest.mark.parametrize("kind", KINDS)
def test_an_honest_image_is_decoded(kind: ImageFormat) -> None:
    """Of each kind, to RGB of its size."""
    seen = observation(image(kind.value), kind)
    assert seen.image.size == SIZE and seen.image.mode == "RGB"
    assert Image.open(io.BytesIO(seen.png)).format == "PNG"


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("kind", KINDS)
def test_no_other_file_reaches_a_decoder(name: str, kind: ImageFormat) -> None:
    """Whatever Pillow could read besides, EPS with its Ghostscript above all."""
    seen = observation(image(name), kind)
    with pytest.raises(BadFrame):
        _ = seen.image
    with pytest.raises(BadFrame):
        _ = seen.png


def test_only_the_kind_that_is_named_is_read() -> None:
    """A JPEG that is called a PNG is refused too."""
    with pytest.raises(BadFrame):
        _ = observation(image("JPEG")).image


def test_a_postscript_program_runs_nowhere(tmp_path: Path) -> None:
    """An EPS file that would write a file when Ghostscript showed it; with or without Ghostscript here."""
    program = f"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 64 48\n%%EndComments\n({tmp_path}/out) (w) file\n"
    with pytest.raises(OSGymError):
        _ = observation(program.encode()).image
    assert not list(tmp_path.iterdir())


def test_a_bomb_is_not_decoded() -> None:
    """300 KB that unpack to 288 MB: refused by the size in its head, without the memory for it."""
    bomb = png_claiming(12_000, 8000)
    assert len(bomb) < 400_000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        for size in ((1920, 1080), (12_000, 8000)):
            with pytest.raises(BadFrame):
                _ = observation(bomb, size=size).image
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20 * 1024


@pytest.mark.parametrize("size", [(0, 0), (-1, -1), (0, 5), (MAX_IMAGE_PIXELS + 1, 1)])
def test_sizes_out_of_range_are_refused(size: tuple[int, int]) -> None:
    """Before Pillow hears of them."""
    with pytest.raises(BadFrame):
        _ = observation(image("PNG"), size=size).image


@given(st.binary(max_size=200), st.sampled_from(KINDS), st.integers(1, 60))
def test_noise_is_a_typed_error(noise: bytes, kind: ImageFormat, keep: int) -> None:
    """Whatever follows an honest beginning."""
    try:
        _ = observation(image(kind.value)[:keep] + noise, kind).image
    except BadFrame as error:
        assert error.code == "bad_frame"


def test_an_unchanged_frame_has_the_size_of_its_image() -> None:
    """Also when the guest said the size of the screen."""
    options = ObserveOptions(size=SIZE)
    cache = FrameCache(None, reuse=True)
    first = FrameInfo("h", ImageFormat.PNG, *SIZE, (1920, 1080))
    assert cache.image(first, b"png", options) == (first, b"png")
    again = FrameInfo("h", ImageFormat.PNG, 1920, 1080, (1920, 1080), unchanged=True)
    frame, data = cache.image(again, b"", cache.unless_hash(options))
    assert (frame.width, frame.height) == SIZE and frame.unchanged
    assert data == b"png"


def test_an_unchanged_frame_that_never_came_is_a_typed_error() -> None:
    """An answer without an image, to a client that has no earlier frame, raises `BadFrame`."""
    said = FrameInfo("h", ImageFormat.PNG, *SIZE, SIZE, unchanged=True)
    frame, data = FrameCache(None, reuse=True).image(said, b"", ObserveOptions())
    seen = observation(data, ImageFormat.PNG)
    seen.answer = replace(seen.answer, observation=replace(seen.meta, frame=frame))
    for read in (lambda: seen.image, lambda: seen.png):
        with pytest.raises(BadFrame, match="never received") as raised:
            read()
        assert raised.value.code == "bad_frame"


def test_pillow_is_not_asked_to_guess() -> None:
    """No module of the SDK opens an image without saying which formats it may have."""
    code = (
        "import PIL.Image as I, io; opened = []; real = I.open\n"
        "def spy(fp, mode='r', formats=None):\n    opened.append(formats); return real(fp, mode, formats)\n"
        "I.open = spy\n"
        "from tests.unit.test_sdk_image import image, observation, KINDS\n"
        "[observation(image(k.value), k).image for k in KINDS]\n"
        "print([f for f in opened if not f or len(f) != 1])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
