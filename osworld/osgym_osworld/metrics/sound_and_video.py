"""Metrics over sounds and videos, decoded by FFmpeg's libraries (PyAV), and over tags of MP3 files."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from osgym_host.tasks.metric_plugin import (
    Argument,
    InputFile,
    Score,
    Unreadable,
    as_file,
    differ,
    is_installed,
    metric,
    reader,
    rules_of,
)
from osgym_osworld.formats.perceptual_hash import hash_distance
from osgym_osworld.formats.sound import RATE_HZ, likeness
from osgym_osworld.metrics.settings import matches
from osgym_osworld.packages import needs

if TYPE_CHECKING:
    from PIL import Image

MAX_SOUND_S = 1200
MAX_FRAME_PIXELS = 16_000_000
MAX_CHECKED_FRAMES = 1000
CONTAINERS = "aac,ac3,aiff,asf,avi,flac,flv,gif,matroska,webm,mov,mp4,m4a,3gp,mp3,mpeg,mpegts,ogg,wav,w64"
"""FFmpeg's names of formats that hold what they play; playlists, which name other files, are none of them."""

_sound = needs("av", "numpy")


@metric(unsupported=_sound)
def compare_audios(result: Argument, expected: Argument) -> Score:
    """Similarity of two sounds, 0 to 1; an empty or damaged sound scores 0."""
    try:
        wanted = _samples(as_file(expected, "expected"))
    except Unreadable as error:
        raise Unreadable("expected", str(error)) from error
    got = _samples(as_file(result, "result"))
    if not len(got) or not len(wanted):
        return Score(float(len(got) == len(wanted)), "a sound is empty")
    alike = likeness(got, wanted)
    lengths = f"{len(got) / RATE_HZ:.1f} s, {len(wanted) / RATE_HZ:.1f} s expected"
    return Score(alike, f"alike by {alike:.4f}: {lengths}")


@reader
def _samples(file: InputFile) -> Any:
    """Return the first sound of a file: float32, mono, at `RATE_HZ`.

    Raises:
        Unreadable: It has none, is damaged, or longer than 20 minutes.
    """
    import av
    import numpy as np

    parts: list[Any] = [np.zeros(0, np.float32)]
    count = 0
    with _opened(file) as container:
        if not container.streams.audio:
            raise file.bad("it has no sound")
        stream = container.streams.audio[0]
        stream.codec_context.thread_count = 1
        resampler = av.AudioResampler(format="flt", layout="mono", rate=RATE_HZ)
        for frame in (*container.decode(stream), None):
            for piece in resampler.resample(frame):
                parts.append(piece.to_ndarray().reshape(-1))
                count += piece.samples
            if count > MAX_SOUND_S * RATE_HZ:
                raise file.bad(f"it is longer than {MAX_SOUND_S} s")
    return np.nan_to_num(np.concatenate(parts), posinf=0.0, neginf=0.0)


@metric(unsupported=_sound)
def compare_videos(
    result: Argument, expected: Argument, max_frames_to_check: int = 100, threshold: int = 5
) -> Score:
    """Two videos show the same in their first frames, and end together if they end there.

    Frames are the same when their hashes differ in ``threshold`` bits at most; so many frames may differ.
    """
    pictures = [_frames(as_file(v, role)) for v, role in ((result, "result"), (expected, "expected"))]
    wrong = 0
    for number in range(min(int(max_frames_to_check), MAX_CHECKED_FRAMES)):
        got, wanted = (next(side, None) for side in pictures)
        if got is None or wanted is None:
            same = got is wanted
            return Score(float(same), "" if same else f"one of the videos ends after {number} frames")
        wrong += hash_distance(got, wanted) > threshold
        if wrong > threshold:
            return Score(0.0, f"{wrong} of the first {number + 1} frames differ")
    return Score(1.0)


def _frames(file: InputFile) -> Iterator[Image.Image]:
    """Yield a video's frames up to the first damaged one; a file without frames is unreadable."""
    import av

    count = 0
    try:
        with _opened(file) as container:
            if not container.streams.video:
                raise file.bad("it has no video")
            stream = container.streams.video[0]
            stream.codec_context.thread_count = 1
            for frame in container.decode(stream):
                if frame.width * frame.height > MAX_FRAME_PIXELS:
                    raise file.bad(f"{frame.width}×{frame.height} pixels are too many")
                count += 1
                yield frame.to_image()
    except (av.FFmpegError, ValueError) as error:
        if not count:
            raise file.bad(f"not a readable video: {error}") from error


def _opened(file: InputFile) -> Any:
    import av

    return av.open(io.BytesIO(file.data()), options={"format_whitelist": CONTAINERS})


@metric(unsupported=needs("mutagen"))
def check_mp3_meta(result: Argument, expected: Argument) -> Score:
    """Tags of an MP3 file, by ID3's common names (title, artist, album …), fulfil their conditions."""
    rules, tags = rules_of(expected), _tags(as_file(result, "result"))
    for name, condition in rules.items():
        value = tags.get(name, "")
        if not matches(value, condition["method"], condition["ref"]):
            return differ(f"the tag {name}", value, condition)
    return Score(1.0)


@reader
def _tags(file: InputFile) -> dict[str, str]:
    """Return the tags of an MP3 file, several values of one joined by commas.

    Raises:
        Unreadable: It has none, or is damaged.
    """
    from mutagen import easyid3

    tags: Any = easyid3.EasyID3(io.BytesIO(file.data()))  # type: ignore[no-untyped-call]  # has no types
    return {str(name): ",".join(str(value) for value in tags[name]) for name in list(tags.keys())}


def warm_up() -> None:
    if is_installed("av") and is_installed("numpy"):
        _warm_up_media()
    if is_installed("mutagen"):
        _warm_up_tags()


def _warm_up_media() -> None:
    import wave

    from PIL import Image

    sound, video = io.BytesIO(), io.BytesIO()
    with wave.open(sound, "wb") as written:
        written.setnchannels(2)
        written.setsampwidth(2)
        written.setframerate(8000)
        written.writeframes(bytes(range(256)) * 128)
    Image.new("RGB", (8, 8)).save(video, "GIF")
    for compare, data in ((compare_audios, sound), (compare_videos, video)):
        file = InputFile(-1, "a", "result", data.getvalue())
        assert compare(file, file).score > 0.999


def _warm_up_tags() -> None:
    title = b"TIT2\0\0\0\x02\0\0\x03a"
    file = InputFile(-1, "a", "result", b"ID3\x04\0\0\0\0\0" + bytes([len(title)]) + title)
    assert check_mp3_meta(file, {"title": {"method": "eq", "ref": "a"}}).score == 1
