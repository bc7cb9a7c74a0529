"""Observations: the frame of a step, the wait for it, the executed actions, the time spent."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from osgym_sdk import wire
from osgym_sdk._exceptions import BadFrame
from osgym_sdk._models import provider_forms
from osgym_sdk.wire import (
    MAX_IMAGE_PIXELS,
    ActionResult,
    Done,
    FrameInfo,
    ImageFormat,
    Message,
    PreviousFrame,
    SettleInfo,
    StepAnswer,
)

if TYPE_CHECKING:
    from PIL.Image import Image

    from osgym_protocol.grammars import Call, Parsed

_MIME = {ImageFormat.PNG: "image/png", ImageFormat.JPEG: "image/jpeg", ImageFormat.WEBP: "image/webp"}
_PILLOW_NAMES = {ImageFormat.PNG: "PNG", ImageFormat.JPEG: "JPEG", ImageFormat.WEBP: "WEBP"}
_MARKS = ("refused", "parsed", "episode_id", "task_id")
"""Attributes of an observation that the client writes."""
_PNG_HEAD = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"


@dataclass(frozen=True, slots=True)
class Timing(Message):
    """Time of one step in milliseconds by part; the parts do not overlap and sum to the total."""

    total_ms: float
    client_ms: float
    network_ms: float
    host_ms: float
    guest_ms: float
    """Time in the guest agent outside the four parts below, with the way from host to guest."""
    input_ms: float
    settle_ms: float
    capture_ms: float
    encode_ms: float

    @property
    def overhead_ms(self) -> float:
        """Time that was not spent waiting for the screen."""
        return self.total_ms - self.settle_ms

    @classmethod
    def split(
        cls, total_ms: float, transfer_ms: float, host: Mapping[str, float], guest: Mapping[str, float]
    ) -> Timing:
        """Turn nested measurements (each includes the next) to parts that sum up.

        Args:
            total_ms: the whole call in the client.
            transfer_ms: from sending the request to the last byte of the answer.
            host: the host's ``timing_ms`` (``host``, of which ``guest``).
            guest: the guest's ``timing_ms``.
        """
        parts = [guest.get(name, 0.0) for name in ("input", "settle", "capture", "encode")]
        in_guest = max(host.get("guest", 0.0), sum(parts))
        in_host = max(host.get("host", host.get("total", 0.0)), in_guest)
        return cls(
            total_ms,
            max(0.0, total_ms - transfer_ms),
            max(0.0, transfer_ms - in_host),
            in_host - in_guest,
            in_guest - sum(parts),
            *parts,
        )


class AnsweredStep:
    """Base of observations and records of steps: the host's answer to a step."""

    __slots__ = ()

    answer: StepAnswer
    """The whole message of the host; what follows reads from it."""

    @property
    def meta(self) -> wire.Observation:
        """Description of the frame that the guest sent with the image."""
        assert self.answer.observation is not None
        return self.answer.observation

    @property
    def step(self) -> int:
        """Number of steps of the episode so far."""
        return self.answer.step

    @property
    def done(self) -> Done | None:
        """Reason why this was the last step; None while the episode goes on."""
        return self.answer.done

    @property
    def settle(self) -> SettleInfo | None:
        """Duration of the wait for the screen, and the reason of its end."""
        return self.meta.settle

    @property
    def results(self) -> tuple[ActionResult, ...]:
        """Results of the actions that were tried; the list stops at the first that failed."""
        return self.meta.results

    @property
    def failed_index(self) -> int | None:
        """Index of the action that failed; None when all were done."""
        return self.meta.failed_index

    @property
    def screen_changed(self) -> bool:
        """Whether nothing was done because the screen was not the one that the step expected."""
        return self.meta.screen_changed


class Observation(AnsweredStep):
    """One frame of an episode and the step before it. The image is decoded when first asked for."""

    def __init__(self, answer: StepAnswer, data: bytes, timing: Timing | None = None) -> None:
        if answer.observation is None:
            raise ValueError("the answer has no observation")
        self.answer = answer
        self.data = data
        """The image as it was sent; the last frame's where ``unchanged``; empty with format ``none``."""
        self.timing = timing
        self.refused: str | None = None
        """Reason why the last action was refused, and nothing was done: the screen had changed, or in a batch
        with ``on_invalid="noop"`` the action was none."""
        self.parsed: Parsed | None = None
        """Reading of a model's output, in an episode with ``actions=``."""
        self.episode_id = ""
        """Id of the episode that it was seen in."""
        self.task_id: str | None = None
        """``id`` of that episode's task."""
        self._image: Image | None = None

    def _take_marks(self, other: Observation) -> None:
        """Take what the client wrote on another observation of the same answer."""
        vars(self).update({name: getattr(other, name) for name in _MARKS})

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle what was seen: a copy belongs to no episode, so it has no ``final()``."""
        marks = {name: getattr(self, name) for name in _MARKS}
        return _restored, (type(self), self.answer, bytes(self.data), self.timing, marks)

    @property
    def actions(self) -> tuple[Mapping[str, Any], ...]:
        """Executed actions in internal form, in pixels."""
        return self.answer.actions

    @property
    def image(self) -> Image:
        """The frame as an RGB Pillow image of ``size``.

        Raises:
            BadFrame: the image has another kind or size than the answer says, and was not decoded; or the
                answer has no image, and names one that this client never received.
            ValueError: the observation carries no image (format ``none``).
        """
        if self._image is None:
            if not self.data and self.unchanged and self.format is not ImageFormat.NONE:
                raise BadFrame(
                    f"the answer has no image, but refers to frame {self.meta.frame.hash}, which was "
                    "never received"
                )
            if not self.data:
                raise ValueError("this observation carries no image (format none)")
            self._image = _decoded(self.data, self.meta.frame)
        return self._image

    @property
    def png(self) -> bytes:
        """The frame as PNG: the bytes as sent, or encoded anew where another format was asked for.

        Raises:
            BadFrame: the image is not what the answer says of it.
            ValueError: the observation carries no image (format ``none``).
        """
        if self.format is ImageFormat.PNG and self.data:
            _check_png(self.data, self.meta.frame)
            return self.data
        out = io.BytesIO()
        self.image.save(out, "PNG", compress_level=1)
        return out.getvalue()

    @property
    def base64(self) -> str:
        """The image bytes as base64 text."""
        return base64.b64encode(self.data).decode("ascii")

    @property
    def data_url(self) -> str:
        """The image as a ``data:`` URL, as model providers take it."""
        return f"data:{self.mime_type};base64,{self.base64}"

    @property
    def mime_type(self) -> str:
        return _MIME.get(self.format, "application/octet-stream")

    @property
    def format(self) -> ImageFormat:
        return self.meta.frame.format

    @property
    def hash(self) -> str:
        """Equal hashes: equal frames."""
        return self.meta.frame.hash

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the image in pixels."""
        return (self.meta.frame.width, self.meta.frame.height)

    @property
    def screen(self) -> tuple[int, int]:
        """Width and height of the real screen; actions are in its pixels."""
        return self.meta.frame.screen

    @property
    def unchanged(self) -> bool:
        """The frame is the one before."""
        return self.meta.frame.unchanged

    @property
    def seq(self) -> int:
        return self.meta.seq

    @property
    def previous(self) -> PreviousFrame | None:
        """Judgement on the previous frame: whether it was final."""
        return self.meta.previous

    @property
    def is_final(self) -> bool | None:
        """After ``final()`` and ``settle="certain"``: whether the screen had come to rest; else None."""
        return self.meta.final

    def to_openai(
        self,
        calls: Parsed | Iterable[Call] | None = None,
        *,
        acknowledge: bool = False,
        error: object = None,
        detail: str | None = "original",
    ) -> list[dict[str, Any]]:
        """Return this as input items of OpenAI's Responses API: a screenshot for each ``computer_call``.

        Args:
            calls: what is answered: what was parsed, by default in the step that led here, or
                :func:`osgym_sdk.grammars.calls_of` an output that was refused. Without any, the image alone.
            acknowledge: acknowledge the calls' pending safety checks; ask a human before.
            error: why an output was refused; what failed in the step by default. It is a message beside.
            detail: of the image; None for ``computer_use_preview``, which has none.

        Raises:
            ConfigError: a call has safety checks and they are not acknowledged.
        """
        return provider_forms.openai(self, self._calls(calls), acknowledge, error, detail)

    def to_anthropic(
        self,
        calls: Parsed | Iterable[Call] | None = None,
        *,
        error: object = None,
        cursor: tuple[int, int] | None = None,
        zooms: Mapping[str, bytes] | None = None,
    ) -> list[dict[str, Any]]:
        """Return this as the content of a user's message for Anthropic: a ``tool_result`` for each call.

        The image is in the last of them and where one was asked for. After the first call that failed, the
        others are answered as not executed.

        Args:
            calls, error: as for :meth:`to_openai`.
            cursor: where the pointer is, in pixels of the screen, for ``cursor_position``.
            zooms: PNG images by the id of the call that asked for them (see :meth:`AsyncEpisode.zoom`). A
                zoom without one is cut out of the image.
        """
        return provider_forms.anthropic(self, self._calls(calls), error, cursor, zooms or {})

    def to_gemini(
        self,
        calls: Parsed | Iterable[Call] | None = None,
        *,
        acknowledge: bool = False,
        error: object = None,
        url: str | None = None,
    ) -> list[dict[str, Any]]:
        """Return this as the parts of a user's content for Gemini: a function's response for each call.

        Args:
            calls, acknowledge, error: as for :meth:`to_openai`; calls of the Interactions API get its form.
            url: what a browser shows, which Gemini likes to know.

        Raises:
            ConfigError: a call has a safety decision and it is not acknowledged.
        """
        return provider_forms.gemini(self, self._calls(calls), acknowledge, error, url)

    def to_chat(
        self,
        calls: Parsed | Iterable[Call] | None = None,
        *,
        error: object = None,
        text: str | None = None,
    ) -> list[dict[str, Any]]:
        """Return this as messages of the Chat Completions API, as vLLM and others serve it.

        Args:
            calls, error: as for :meth:`to_openai`; calls without an id need no answer of their own.
            text: what to say beside the image.
        """
        return provider_forms.chat(self, self._calls(calls), error, text)

    def _calls(self, calls: Parsed | Iterable[Call] | None) -> Iterable[Call]:
        given = self.parsed if calls is None else calls
        if given is None:
            return ()
        return given if isinstance(given, Iterable) else given.calls

    def __repr__(self) -> str:
        settle = f", settle={self.settle.reason.value} {self.settle.wait_ms:.0f} ms" if self.settle else ""
        done = f", done={self.done.value}" if self.done else ""
        return f"<{type(self).__name__} step={self.step} {self.size[0]}x{self.size[1]}{settle}{done}>"


def _restored(
    kind: type[Observation], answer: StepAnswer, data: bytes, timing: Timing | None, marks: Mapping[str, Any]
) -> Observation:
    """Return a copy of an observation, of the same class where that is one of ours."""
    obs = kind.__new__(kind)
    Observation.__init__(obs, answer, data, timing)
    vars(obs).update(marks)
    return obs


def _decoded(data: bytes, frame: FrameInfo) -> Image:
    """Return the image as RGB. A hostile guest may have made it.

    Pillow guesses among dozens of formats, one of which starts Ghostscript: only the format that the answer
    names is tried, and nothing is decoded unless the size in the file is the one that the answer names.

    Raises:
        BadFrame: It is of another kind or size, has more than ``MAX_IMAGE_PIXELS``, or is broken.
    """
    from PIL import Image as PilImage

    name = _PILLOW_NAMES.get(frame.format)
    if name is None:
        raise BadFrame(f"an image of the format {frame.format.value}")
    size = (frame.width, frame.height)
    if not 0 < size[0] * size[1] <= MAX_IMAGE_PIXELS or min(size) < 1:
        raise BadFrame(f"an image of {size[0]}x{size[1]} is too large to be decoded")
    try:
        with PilImage.open(io.BytesIO(data), formats=(name,)) as opened:
            if opened.size != size:
                raise BadFrame(f"the image is {opened.size[0]}x{opened.size[1]}, not {size[0]}x{size[1]}")
            return opened.convert("RGB")
    except BadFrame:
        raise
    except (OSError, ValueError, SyntaxError, EOFError, PilImage.DecompressionBombError) as exc:
        raise BadFrame(f"the {name} cannot be decoded: {exc}") from exc


def _check_png(data: bytes, frame: FrameInfo) -> None:
    """Check the first bytes of a PNG that is passed on as it came.

    Raises:
        BadFrame: It is no PNG, or of another size.
    """
    sides = (side.to_bytes(4, "big") for side in (max(0, frame.width), max(0, frame.height)))
    if data[:24] != _PNG_HEAD + b"".join(sides):
        raise BadFrame(f"the image is not a PNG of {frame.width}x{frame.height}")
