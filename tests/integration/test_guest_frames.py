"""Frames: true to the screen, valid files, encoded anew only where something changed."""

from __future__ import annotations

import io
import random
import struct
import zlib
from collections.abc import Iterator

import pytest
from PIL import Image, ImageChops
from tests.support.guest_rig import Desktop, GuestFault, desktop

from osgym_guest._native import Display

FAST = {"policy": "fast"}


@pytest.fixture(scope="module")
def screen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desktop]:
    """One desktop with something on it; its height is no multiple of a stripe's."""
    with desktop(tmp_path_factory.mktemp("frames"), size=(1278, 797)) as made:
        made.open("xterm", "-geometry", "80x24+600+300", "-e", "sh", "-c", "ls -l /usr/bin | head -40; cat")
        yield made


def differs(a: Image.Image, b: Image.Image) -> tuple[int, int, int, int] | None:
    """The box in which two images differ."""
    return ImageChops.difference(a.convert("RGB"), b.convert("RGB")).getbbox()


def decode(data: bytes) -> Image.Image:
    """An image file, checked to the last byte."""
    image = Image.open(io.BytesIO(data))
    image.load()
    return image


def check_png(data: bytes) -> None:
    """Every chunk's CRC, and the zlib stream with its adler, as a strict reader does it."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, stream, last = 8, b"", b""
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        last = data[at + 4 : at + 8]
        body = data[at + 8 : at + 8 + length]
        assert struct.unpack_from(">I", data, at + 8 + length)[0] == zlib.crc32(last + body)
        stream += body if last == b"IDAT" else b""
        at += 12 + length
    assert last == b"IEND" and at == len(data)
    width, height = struct.unpack_from(">II", data, 16)
    assert len(zlib.decompress(stream)) == height * (3 * width + 1)


def test_a_frame_is_what_the_x_server_shows(screen: Desktop) -> None:
    """From the framebuffer file, with the cursor, it equals GetImage with the cursor laid over."""
    screen.guest.step({"op": "move", "x": 400, "y": 400})
    meta, data = screen.guest.observe()
    check_png(data)
    image = decode(data)
    assert (image.mode, image.size) == ("RGB", (1278, 797))
    assert meta["frame"]["screen"] == [1278, 797] and meta["frame"]["format"] == "png"
    other = Display(screen.display)
    assert not other.uses_fbdir()
    other.capture()
    fallback = decode(other.png())
    other.close()
    assert differs(image, fallback) is None
    assert len(image.crop((600, 320, 1000, 600)).getcolors(1 << 20) or []) > 1


def test_the_cursor_is_in_the_frame(screen: Desktop) -> None:
    """Moving it changes the frame where it was and where it is, and nothing else."""
    screen.guest.step({"op": "move", "x": 100, "y": 100})
    first = screen.guest.image()
    screen.guest.step({"op": "move", "x": 200, "y": 150})
    second = screen.guest.image()
    box = differs(first, second)
    assert box is not None
    assert 80 <= box[0] <= 110 and 80 <= box[1] <= 110 and 190 <= box[2] <= 230 and 140 <= box[3] <= 180


def test_parts_that_did_not_change_are_used_again_and_right(screen: Desktop) -> None:
    """After every small change the reassembled file equals the pixels encoded afresh."""
    rnd = random.Random(1)
    for _ in range(12):
        x, y = rnd.randrange(1278), rnd.randrange(797)
        _, data = screen.guest.step({"op": "move", "x": x, "y": y}, {"op": "type", "text": "x"}, settle=FAST)
        check_png(data)
        other = Display(screen.display)
        other.capture()
        fresh = decode(other.png())
        other.close()
        assert differs(decode(data), fresh) is None


def test_a_cursor_of_another_shape_is_right(screen: Desktop) -> None:
    """The X server draws it without a damage event; nothing is left of the one before."""
    for x, y in ((60, 60), (800, 400), (60, 60)):  # the terminal's is an upright bar
        screen.guest.step({"op": "move", "x": x, "y": y})
        shown = screen.guest.image()
        other = Display(screen.display)
        other.capture()
        assert differs(shown, decode(other.png())) is None
        other.close()
        assert len(shown.crop((x - 12, y - 12, x + 12, y + 12)).getcolors() or []) > 1


def test_the_hash_tells_frames_apart(screen: Desktop) -> None:
    """Equal screens have equal hashes, also across formats; another pixel has another one."""
    screen.guest.step({"op": "move", "x": 100, "y": 100})
    first = screen.guest.observe()[0]["frame"]["hash"]
    assert screen.guest.observe(format="none")[0]["frame"]["hash"] == first
    screen.guest.step({"op": "move", "x": 101, "y": 100})
    assert screen.guest.observe()[0]["frame"]["hash"] != first
    screen.guest.step({"op": "move", "x": 100, "y": 100})
    assert screen.guest.observe()[0]["frame"]["hash"] == first


def test_an_unchanged_frame_is_not_sent_again(screen: Desktop) -> None:
    """With its hash given there is no image; with another there is."""
    known = screen.guest.observe()[0]["frame"]["hash"]
    meta, data = screen.guest.observe(unless_hash=known)
    assert (meta["frame"]["unchanged"], data) == (True, b"")
    meta, data = screen.guest.observe(unless_hash="0" * 16)
    assert meta["frame"]["unchanged"] is False and data


def test_regions_and_sizes(screen: Desktop) -> None:
    """A region is a crop at native resolution; a size scales; JPEG and WebP are what they say."""
    whole = screen.guest.image()
    meta, data = screen.guest.observe(region=[601, 303, 333, 211])
    check_png(data)
    assert differs(decode(data), whole.crop((601, 303, 934, 514))) is None
    assert (meta["frame"]["width"], meta["frame"]["height"]) == (333, 211)
    meta, data = screen.guest.observe(size=[639, 398])
    assert decode(data).size == (639, 398) == (meta["frame"]["width"], meta["frame"]["height"])
    for name in ("jpeg", "webp"):
        part = {"region": [600, 300, 400, 300], "size": [200, 150]}
        meta, data = screen.guest.observe(format=name, quality=90, **part)
        image = decode(data)
        assert (image.format, image.size) == (name.upper(), (200, 150))
        wanted = whole.crop((600, 300, 1000, 600)).resize((200, 150), Image.Resampling.LANCZOS)
        difference = ImageChops.difference(image.convert("L"), wanted.convert("L"))
        assert difference.resize((1, 1), Image.Resampling.BOX).getpixel((0, 0)) < 12
    assert screen.guest.observe(format="none")[1] == b""


def test_a_region_outside_is_refused(screen: Desktop) -> None:
    """Never clamped."""
    with pytest.raises(GuestFault) as caught:
        screen.guest.observe(region=[1200, 0, 100, 10])
    assert (caught.value.status, caught.value.code) == (400, "bad_request")


def test_osworlds_screenshot_is_the_same_picture(screen: Desktop) -> None:
    """GET /screenshot is a PNG with the cursor."""
    assert differs(decode(screen.guest.call("GET", "/screenshot")), screen.guest.image()) is None


def test_without_a_framebuffer_file_everything_works_as_well(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """The agent on a server that gives no file: frames by shared memory, cursor drawn in."""
    with desktop(tmp_path_factory.mktemp("shm"), size=(640, 480), fbdir=False) as screen:
        screen.open("xterm", "-geometry", "60x15+20+20", "-e", "cat")
        screen.guest.step({"op": "move", "x": 500, "y": 400})
        first = screen.guest.image()
        meta, data = screen.guest.step({"op": "move", "x": 550, "y": 400}, {"op": "type", "text": "hello\n"})
        check_png(data)
        assert meta["settle"]["reason"] == "quiet"
        box = differs(first, decode(data))
        assert box is not None and box[0] < 200 and box[2] > 540
