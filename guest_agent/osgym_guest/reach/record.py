"""``/v1/reach/record/start`` and ``…/end``: a video of the screen, bounded in time and size."""

from __future__ import annotations

from osgym_guest.http import HttpError, Request, Response, bad
from osgym_guest.osworld.recording import RecordingBounds
from osgym_guest.reach.context import ReachContext
from osgym_protocol.codec import WireFormatError, known_fields
from osgym_protocol.codes import GuestErrorCode
from osgym_protocol.guest_api import number
from osgym_protocol.limits import MAX_FRAMES_PER_S, MAX_ID_CHARS, MAX_READ_BYTES, MAX_RECORD_S

MIN_BYTES = 64 * 1024


def _recording_id(value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= MAX_ID_CHARS:
        raise bad("recording_id is required")
    return value


async def start(context: ReachContext, request: Request) -> Response:
    """Start a recording. Repeating the request with its id changes nothing."""
    known = ("recording_id", "max_s", "max_bytes", "frames_per_s")
    try:
        body = known_fields(request.json_object(), known, request.path)
        bounds = RecordingBounds(
            frames_per_s=int(number(body.get("frames_per_s"), "frames_per_s", 1, MAX_FRAMES_PER_S)),
            max_s=number(body.get("max_s"), "max_s", 1, MAX_RECORD_S),
            max_bytes=int(number(body.get("max_bytes"), "max_bytes", MIN_BYTES, MAX_READ_BYTES)),
        )
    except WireFormatError as exc:
        raise bad(str(exc)) from exc
    recording_id = _recording_id(body.get("recording_id"))
    recorder = context.desktop.recorder
    async with recorder.lock:
        if recorder.recording_id == recording_id:
            return Response.json({})
        if recorder.running:
            raise HttpError(409, GuestErrorCode.BUSY, "another recording is running")
        try:
            failure = await recorder.start(bounds, recording_id)
        except FileNotFoundError as exc:
            text = "this desktop has no ffmpeg: use an image that has it, such as full"
            raise HttpError(501, GuestErrorCode.NOT_AVAILABLE, text) from exc
        except OSError as exc:
            failure = str(exc)
    if failure is not None:
        raise HttpError(500, GuestErrorCode.INTERNAL, f"the recording could not be started: {failure}")
    return Response.json({})


async def end(context: ReachContext, request: Request) -> Response:
    """End a recording and return the MP4, also to a repeated request."""
    try:
        body = known_fields(request.json_object(), ("recording_id",), request.path)
    except WireFormatError as exc:
        raise bad(str(exc)) from exc
    recording_id = _recording_id(body.get("recording_id"))
    recorder = context.desktop.recorder
    async with recorder.lock:
        if recorder.recording_id != recording_id:
            raise bad("no recording with this id was started, or a later one replaced it")
        failure = await recorder.stop() if recorder.started else None
    if failure is not None:
        raise HttpError(500, GuestErrorCode.INTERNAL, f"the recording failed: {failure}")
    return Response.stream(recorder.path, "video/mp4")
