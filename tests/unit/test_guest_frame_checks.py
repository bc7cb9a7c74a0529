"""What a guest says of a frame is believed only as far as it can be true."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from PIL import Image

from osgym_host.guest_client.body import SMALL_BYTES, BodyBuffer
from osgym_host.guest_client.frame_checks import AskedImage, InvalidFrame, check_observation
from osgym_protocol.codes import ImageFormat
from osgym_protocol.limits import MAX_ACTIONS, MAX_HASH_CHARS, MAX_SCREEN_SIDE_PX, MAX_TIMINGS
from osgym_protocol.observation import ActionResult, FrameInfo, Observation

FRAME = FrameInfo("h", ImageFormat.PNG, 64, 48, (64, 48))
SEEN = Observation(FRAME, seq=1)


def image(kind: str, size: tuple[int, int] = (64, 48)) -> bytes:
    """A real image file."""
    out = io.BytesIO()
    Image.new("RGB", size, (1, 2, 3)).save(out, kind)
    return out.getvalue()


@pytest.mark.parametrize("kind", [ImageFormat.PNG, ImageFormat.JPEG, ImageFormat.WEBP])
def test_real_images_are_taken(kind: ImageFormat) -> None:
    """Of every kind, as Pillow writes them."""
    check_observation(replace(SEEN, frame=replace(FRAME, format=kind)), image(kind.value), AskedImage(kind))


def test_no_image_is_taken_where_none_is_due() -> None:
    """It is the same as before, or was not asked for."""
    same = replace(SEEN, frame=replace(FRAME, unchanged=True))
    check_observation(same, b"", AskedImage(unless_hash=FRAME.hash))
    check_observation(replace(same, replayed=True), b"", AskedImage())
    check_observation(
        replace(SEEN, frame=replace(FRAME, format=ImageFormat.NONE)), b"", AskedImage(ImageFormat.NONE)
    )
    replayed = replace(SEEN, replayed=True)
    check_observation(replayed, image("png"), AskedImage(ImageFormat.JPEG, (1, 1)))


@pytest.mark.parametrize("known", [None, "another"])
def test_a_frame_is_the_same_only_where_that_was_asked(known: str | None) -> None:
    """A guest that leaves out an image that the client does not have is not believed."""
    same = replace(SEEN, frame=replace(FRAME, unchanged=True))
    with pytest.raises(InvalidFrame, match="the request did not name"):
        check_observation(same, b"", AskedImage(unless_hash=known))


@pytest.mark.parametrize(
    "change",
    [
        {"width": 0},
        {"height": -1},
        {"width": MAX_SCREEN_SIDE_PX + 1},
        {"screen": (0, 48)},
        {"screen": (64, MAX_SCREEN_SIDE_PX + 1)},
        {"hash": ""},
        {"hash": "x" * (MAX_HASH_CHARS + 1)},
        {"hash": "a\x1b[2J"},
        {"hash": "é"},
        {"width": 65},
        {"width": 48, "height": 64},
        {"width": 16384, "height": 16384},
        {"format": ImageFormat.JPEG},
        {"format": ImageFormat.WEBP},
        {"format": ImageFormat.NONE},
        {"unchanged": True},
    ],
)
def test_what_contradicts_itself_is_refused(change: dict[str, Any]) -> None:
    """Sizes, hash and kind against the image that came."""
    with pytest.raises(InvalidFrame):
        check_observation(replace(SEEN, frame=replace(FRAME, **change)), image("png"), None)


@pytest.mark.parametrize(
    "sent", [b"", b"%!PS-Adobe-3.0", b"GIF89a", image("png")[:20], image("png", (65, 48))]
)
def test_other_files_are_refused(sent: bytes) -> None:
    """Nothing but the kind that is named, in the size that is named."""
    with pytest.raises(InvalidFrame):
        check_observation(SEEN, sent, AskedImage())


def test_more_than_was_asked_for_is_refused() -> None:
    """Another kind, more bytes than pixels can take, more results than a step has actions, endless times."""
    good = image("png")
    check_observation(SEEN, good + bytes(60_000), AskedImage(size=(64, 48)))
    for seen, sent, asked in (
        (SEEN, good, AskedImage(ImageFormat.JPEG)),
        (SEEN, good, AskedImage(size=(65, 48))),
        (SEEN, good + bytes(80_000), AskedImage()),
        (replace(SEEN, results=(ActionResult(True, "x"),) * (MAX_ACTIONS + 1)), good, None),
        (replace(SEEN, timing_ms={str(n): 1.0 for n in range(MAX_TIMINGS + 1)}), good, None),
        (replace(SEEN, failed_index=-1), good, None),
    ):
        with pytest.raises(InvalidFrame):
            check_observation(seen, sent, asked)


@pytest.mark.parametrize("announced", [0, 10, SMALL_BYTES, SMALL_BYTES + 1, 3 * SMALL_BYTES])
@pytest.mark.parametrize("size", [0, 1, 10, 70_000, SMALL_BYTES, SMALL_BYTES + 1, 3 * SMALL_BYTES])
def test_a_body_keeps_what_was_added(announced: int, size: int) -> None:
    """However long it gets, and whatever was announced."""
    limit = max(announced, size, 1)
    data = bytes(range(256)) * (size // 256 + 1)
    buffer = BodyBuffer(limit, announced)
    for begin in range(0, size, 100_000):
        buffer.add(data[begin : min(size, begin + 100_000)])
    assert buffer.taken() == data[:size]
