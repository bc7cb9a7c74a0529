"""Getters of sounds and pictures in slides, of the wallpaper, and of a span of time."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from osgym_host.tasks.getter_plugin import (
    COMMAND_TIMEOUT_S,
    GUEST_TIMEOUT_S,
    MAX_URL_CHARS,
    FileName,
    FilePath,
    GuestAnswerTooLarge,
    GuestRefused,
    InvalidUrl,
    Parameters,
    TaskRun,
    Value,
    check_text,
    getter,
    guest_file,
    is_ours,
)
from osgym_osworld.formats.slide_parts import MAX_SLIDES

LINKED = (
    "import sys, zipfile, urllib.parse, xml.etree.ElementTree as tree\n"
    "path, number, kind = sys.argv[1:]\n"
    "with zipfile.ZipFile(path) as deck:\n"
    "    root = tree.fromstring(deck.read(f'ppt/slides/_rels/slide{number}.xml.rels'))\n"
    "for relation in root:\n"
    "    if kind in relation.get('Type', ''):\n"
    "        target = relation.get('Target', '')\n"
    "        print(urllib.parse.unquote(target[7:]) if target.startswith('file:///') else '')\n"
    "        break\n"
)
"""Tells in the guest which file of its own a slide links to; what slides hold, the confined process reads."""


class SlideParameters(Parameters):
    """A slide, counted from 0, of a pptx file of the guest."""

    ppt_file_path: FilePath
    slide_index: Annotated[int, Field(ge=0, lt=MAX_SLIDES)]
    dest: FileName = "file"


@getter(SlideParameters, reads_files=True)
async def audio_in_slide(run: TaskRun, parameters: SlideParameters) -> Value:
    """The first sound of a slide: in the presentation, or the guest's file that it links to."""
    return await _in_slide(run, parameters, "audio", "slide_sound")


@getter(SlideParameters, reads_files=True)
async def background_image_in_slide(run: TaskRun, parameters: SlideParameters) -> Value:
    """The picture behind a slide: in the presentation, or the guest's file that it links to."""
    return await _in_slide(run, parameters, "image", "slide_background")


async def _in_slide(run: TaskRun, parameters: SlideParameters, kind: str, reader: str) -> Value:
    number = parameters.slide_index + 1
    command = ["python3", "-I", "-c", LINKED, parameters.ppt_file_path, str(number), kind]
    asked = await run.guest.execute(
        command, timeout_s=run.left("a slide's links", COMMAND_TIMEOUT_S), isolated=run.of_check
    )
    linked = asked.output.strip() if asked.returncode == 0 else ""
    if linked:
        try:
            path = check_text(linked[:MAX_URL_CHARS])
        except InvalidUrl as error:
            return Value(missing=True, note=f"slide {number} links to a file whose name {error}")
        got = await guest_file(run, path, parameters.dest)
        return got if isinstance(got, Value) else Value(files=(got,))
    got = await guest_file(run, parameters.ppt_file_path, parameters.ppt_file_path)
    if isinstance(got, Value):
        return got
    return Value(files=(got,), reader=reader, reader_options={"number": number})


class WallpaperParameters(Parameters):
    dest: FileName = "wallpaper"


@getter(WallpaperParameters)
async def vm_wallpaper(run: TaskRun, parameters: WallpaperParameters) -> Value:
    """The picture that the desktop shows as its background."""
    limit = run.ctx.policy.max_file_bytes
    try:
        data = await run.guest.wallpaper(
            max_bytes=limit, timeout_s=run.left("the wallpaper", GUEST_TIMEOUT_S)
        )
    except GuestAnswerTooLarge:
        return Value(missing=True, note=f"the wallpaper is larger than {limit} bytes")
    except GuestRefused as error:
        if error.status == 404 and not is_ours(error):
            return Value(missing=True, note="the desktop shows no wallpaper")
        raise
    return Value(files=(await run.keep(data, parameters.dest),))


class TimeParameters(Parameters):
    diff_range_in_minutes: Annotated[int, Field(ge=0, le=1_000_000)]


@getter(TimeParameters, from_replica=False)
async def time_diff_range(run: TaskRun, parameters: TimeParameters) -> Value:
    """Number of minutes in the task file."""
    return Value(data=str(parameters.diff_range_in_minutes))
