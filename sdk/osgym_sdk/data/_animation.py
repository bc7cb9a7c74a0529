"""One episode as an animated GIF (for a message or a README) or as an MP4 video (for all else)."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont

from osgym_sdk._exceptions import DatasetError, OSGymError
from osgym_sdk._extras import need_extra
from osgym_sdk.data._dataset import Episode, Step
from osgym_sdk.data._replay_words import in_words, marks, reward_word

GIF_WIDTH, MP4_WIDTH = 640, 1280
"""Pixels."""
MP4_FPS = 5
"""Frames per second: a step is several, so that players can seek; repeated ones cost nothing."""
MP4_CRF = 23
"""x264's own default: text stays readable."""
STEP_S = 0.8
END_S = 2.5
MARK_COLOURS = ("#ffffff", "#e5162b")
"""Colours of the outline of a mark, and of the mark."""
NO_IMAGES = "the episode has no images; a host records them with the setting `trajectory: frames`"
CAPTION_COLOURS = ("#1d2430", "#ffffff")
"""Colours of the strip below the screen, and of its text."""
MAX_CAPTION = 400
"""Characters: more never fit."""
CAPTION_SHARE = 24
"""The strip is as high as the picture is wide, divided by this."""
MARK_ROWS = 40
"""Rows of each colour in the image that the palette is made from: enough to be in the palette."""


def write_gif(
    episode: Episode, path: str | os.PathLike[str], *, width: int = GIF_WIDTH, step_s: float = STEP_S
) -> int:
    """Write what the policy saw in each step, what it did drawn on it and said below, then the last screen.

    Args:
        width: pixels of the picture; the height follows.
        step_s: how long a step is shown, in seconds.

    Returns:
        How many frames it has.

    Raises:
        DatasetError: the episode has no images, or the file cannot be written.
    """
    # One palette for all: colours do not jump, and what did not change costs nothing.
    pictures = [picture.convert("RGB") for picture in _pictures(episode, width)]
    if not pictures:
        raise DatasetError(NO_IMAGES)
    palette = _palette(pictures)
    frames = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]
    times_ms = [int(1000 * step_s)] * (len(frames) - 1) + [int(1000 * END_S)]
    try:
        frames[0].save(
            Path(path),
            "GIF",
            save_all=True,
            append_images=frames[1:],
            duration=times_ms,
            loop=0,
            optimize=False,
        )
    except OSError as exc:
        raise DatasetError(f"{path}: {exc.strerror or exc}") from exc
    return len(frames)


def write_mp4(
    episode: Episode, path: str | os.PathLike[str], *, width: int = MP4_WIDTH, step_s: float = STEP_S
) -> int:
    """Write the same as a video (H.264 in MP4), one screen in memory at a time. Needs `osgym-sdk[video]`.

    Args:
        width: pixels of the picture, made even; the height follows.
        step_s: how long a step is shown, in seconds.

    Returns:
        How many screens it shows.

    Raises:
        ConfigError: PyAV is not installed.
        DatasetError: the episode has no images, or the file cannot be written.
    """
    need_extra("video", "av")
    import av

    make_frame: Any = av.VideoFrame.from_image

    width -= width % 2
    pictures = _pictures(episode, width)
    first = next(pictures, None)
    if first is None:
        raise DatasetError(NO_IMAGES)
    target = Path(path)
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    shown = 0
    try:
        with av.open(str(partial), "w", format="mp4", options={"movflags": "faststart"}) as film:
            stream = film.add_stream("libx264", rate=MP4_FPS, options={"crf": str(MP4_CRF)})
            stream.width, stream.height, stream.pix_fmt = width, first.height & ~1, "yuv420p"
            for picture in itertools.chain([first], pictures):
                even = picture.convert("RGB").crop((0, 0, stream.width, stream.height))
                frame: av.VideoFrame = make_frame(even)
                _show(film, stream, frame, step_s)
                shown += 1
            _show(film, stream, frame, END_S - step_s)
            film.mux(stream.encode())
        partial.replace(target)
    except OSError as exc:  # PyAV's own errors are some, too
        raise DatasetError(f"{path}: {exc.strerror or exc}") from exc
    finally:
        partial.unlink(missing_ok=True)
    return shown


def _show(film: Any, stream: Any, frame: Any, seconds: float) -> None:
    for _ in range(max(1, round(seconds * MP4_FPS))):
        frame.pts = None  # the encoder counts
        film.mux(stream.encode(frame))


def _palette(pictures: list[Image.Image]) -> Image.Image:
    """Return a palette for the first, the middle and the last frame, and for the marks."""
    chosen = [pictures[0], pictures[len(pictures) // 2], pictures[-1]]
    width, height = pictures[0].size
    sheet = Image.new("RGB", (width, 3 * height + 4 * MARK_ROWS))
    for row, picture in enumerate(chosen):
        sheet.paste(picture.resize((width, height)), (0, row * height))
    for row, colour in enumerate((*MARK_COLOURS, *CAPTION_COLOURS)):
        top = 3 * height + row * MARK_ROWS
        sheet.paste(colour, (0, top, width, top + MARK_ROWS))
    return sheet.quantize(256)


def _pictures(episode: Episode, width: int) -> Iterator[Image.Image]:
    for step in episode.steps:
        image = _image(step, before=True)
        if image is not None:
            yield _said_below(_drawn(image, step, width), "; ".join(in_words(a) for a in step.actions))
    last = _image((episode.steps or [episode.first])[-1], before=False)
    if last is not None:
        yield _said_below(_scaled(last, width), reward_word(episode)["text"])


def _image(step: Step, *, before: bool) -> Image.Image | None:
    try:
        return step.image_before if before else step.image
    except (OSGymError, KeyError, OSError):
        return None


def _scaled(image: Image.Image, width: int) -> Image.Image:
    return image.resize((width, max(1, image.height * width // image.width)), Image.Resampling.BOX)


def _drawn(image: Image.Image, step: Step, width: int) -> Image.Image:
    picture = _scaled(image, width)
    draw = ImageDraw.Draw(picture)
    scale = width / (step["screen_width"] or image.width)
    size = width / 60
    for action in step.actions:
        for mark in marks(action):
            for colour, line in zip(MARK_COLOURS, (5, 3), strict=True):
                _draw(draw, mark, scale, size, colour, line)
    return picture


def _said_below(picture: Image.Image, text: str) -> Image.Image:
    """Return the picture with a strip below it that says what fits of the text on one line."""
    height = picture.width // CAPTION_SHARE
    canvas = Image.new("RGB", (picture.width, picture.height + height), CAPTION_COLOURS[0])
    canvas.paste(picture)
    font = ImageFont.load_default(height * 0.55)
    room, line = picture.width - height, " ".join(text[:MAX_CAPTION].split())
    if font.getlength(line) > room:
        while line and font.getlength(f"{line}…") > room:
            line = line[:-1]
        line += "…"
    place = (height / 2, picture.height + height / 2)
    ImageDraw.Draw(canvas).text(place, line, CAPTION_COLOURS[1], font, anchor="lm")
    return canvas


def _draw(
    draw: ImageDraw.ImageDraw, mark: dict[str, Any], scale: float, size: float, colour: str, line: int
) -> None:
    if "path" in mark:
        draw.line([(x * scale, y * scale) for x, y in mark["path"]], colour, line)
        return
    x, y = mark["x"] * scale, mark["y"] * scale
    draw.ellipse((x - size, y - size, x + size, y + size), outline=colour, width=line)
