"""Messages that reach into an episode's desktop, past its screen: commands, files, windows, tree, video,
ports, scores.

They are no steps: none acts by mouse or keyboard, changes a step's number or takes a frame. Each reach is an
event of the episode's trajectory, and a task can forbid it (`osgym.reach`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from osgym_protocol.bounds import Bounds, Id
from osgym_protocol.codec import OMIT, Message, Request
from osgym_protocol.codes import TextEnum
from osgym_protocol.limits import (
    DEFAULT_A11Y_BYTES,
    DEFAULT_A11Y_S,
    DEFAULT_COMMAND_S,
    DEFAULT_FRAMES_PER_S,
    DEFAULT_READ_BYTES,
    DEFAULT_RECORD_S,
    MAX_A11Y_BYTES,
    MAX_A11Y_S,
    MAX_COMMAND_BYTES,
    MAX_COMMAND_S,
    MAX_COMMAND_WORDS,
    MAX_FRAMES_PER_S,
    MAX_PATH_CHARS,
    MAX_REACH_ARGUMENT_CHARS,
    MAX_READ_BYTES,
    MAX_RECORD_S,
    MAX_STDIN_BYTES,
)

_Path = Annotated[str, Bounds(min_length=1, max_length=MAX_PATH_CHARS)]
_Word = Annotated[str, Bounds(max_length=MAX_COMMAND_BYTES)]
_Words = Annotated[tuple[_Word, ...], Bounds(min_length=1, max_length=MAX_COMMAND_WORDS)]
_Environment = Annotated[Mapping[str, _Word], Bounds(max_length=MAX_COMMAND_WORDS)]
_Base64 = Annotated[str, Bounds(max_length=MAX_STDIN_BYTES // 3 * 4 + 8)]


class ReachKind(TextEnum):
    """Ways to reach into a desktop. Open: a client must accept others."""

    EXECUTE = "execute"
    READ_FILE = "read_file"
    WRITE_FILE = "write_file"
    A11Y = "a11y"
    WINDOWS = "windows"
    RECORD = "record"
    EXPOSE = "expose"
    SCORE = "score"


@dataclass(frozen=True, slots=True)
class ScoreRequest(Request):
    """``POST /v1/episodes/{id}/score``: score the desktop as it is; the episode goes on.

    A repeated ``request_id`` gives the same answer, and nothing is done a second time.
    """

    request_id: Id
    lease: Id
    prepare: bool = True
    """Whether the check waits until the desktop is at rest, and runs the evaluator's ``postconfig``, which
    changes the desktop, before it looks."""


@dataclass(frozen=True, slots=True)
class ExecuteRequest(Request):
    """``POST /v1/episodes/{id}/execute``. A repeated ``request_id`` runs nothing a second time."""

    request_id: Id
    lease: Id
    command: _Words
    """Program and its arguments; with ``shell`` the script, and its arguments."""
    shell: bool = False
    timeout_s: Annotated[float, Bounds(ge=0.1, le=MAX_COMMAND_S)] = DEFAULT_COMMAND_S
    """Deadline at which it is killed, with its process group."""
    cwd: _Path | None = field(default=None, metadata=OMIT)
    """Working directory; the user's home unless set."""
    env: _Environment | None = field(default=None, metadata=OMIT)
    """Variables that override the desktop's own environment."""
    stdin_base64: _Base64 | None = field(default=None, metadata=OMIT)


@dataclass(frozen=True, slots=True)
class CommandResult(Message):
    """End and output of a command. Written in the replica: the text may say anything."""

    returncode: int
    """Exit status; the negative number of the signal that ended it."""
    stdout: str
    """Standard output; bytes that are not UTF-8 are replaced."""
    stderr: str
    timed_out: bool
    """True when the command was killed at its deadline; the outputs are those until then."""
    truncated: bool
    """One of the outputs was longer than ``MAX_OUTPUT_BYTES``."""
    duration_ms: float
    replayed: bool = False
    """Answer of an earlier call with this ``request_id``."""

    @property
    def output(self) -> str:
        """Both outputs, standard output first."""
        return self.stdout + self.stderr


@dataclass(frozen=True, slots=True)
class ReadFileRequest(Request):
    """``POST /v1/episodes/{id}/file``.

    The path is taken as it is; ``~/`` and relative paths are below the home.
    """

    lease: Id
    path: _Path
    max_bytes: Annotated[int, Bounds(ge=1, le=MAX_READ_BYTES)] = DEFAULT_READ_BYTES


@dataclass(frozen=True, slots=True)
class FileAnswer(Message):
    """Record meta of a file that was read (its blob), and answer to one that was written."""

    size: int


@dataclass(frozen=True, slots=True)
class A11yRequest(Request):
    """``POST /v1/episodes/{id}/a11y``."""

    lease: Id
    timeout_s: Annotated[float, Bounds(ge=0.1, le=MAX_A11Y_S)] = DEFAULT_A11Y_S
    """Deadline of each application; what was not read by then is marked."""
    max_bytes: Annotated[int, Bounds(ge=1024, le=MAX_A11Y_BYTES)] = DEFAULT_A11Y_BYTES


@dataclass(frozen=True, slots=True)
class A11yAnswer(Message):
    """Record meta of the accessibility tree; its blob is the XML, cut at ``max_bytes`` (``truncated``)."""

    truncated: bool


@dataclass(frozen=True, slots=True)
class Window(Message):
    """One window of the desktop. Texts are the application's, shortened: show them, never interpret them."""

    id: int
    title: str
    app: str
    """Second part of its WM_CLASS."""
    instance: str
    """First part of its WM_CLASS."""
    x_px: int
    """Upper left corner of its content, without its frame; may be off the screen."""
    y_px: int
    width_px: int
    height_px: int
    focused: bool = False
    minimized: bool = False
    maximized: bool = False
    fullscreen: bool = False
    modal: bool = False
    """True for a dialog that must be answered before its program's other windows take input."""
    above: bool = False
    """True for a window that the window manager keeps above others."""
    visible: bool = True
    """True on the shown workspace, unless minimised, rolled up or off the screen; others may cover it."""
    ordinary: bool = True
    """True for an application's window, false for a panel or the desktop."""
    pid: int | None = None
    """Process that it reports to belong to."""


@dataclass(frozen=True, slots=True)
class WindowsAnswer(Message):
    """``POST /v1/episodes/{id}/windows``: oldest first."""

    windows: tuple[Window, ...]
    truncated: bool = False
    """There are more than ``MAX_WINDOWS``."""


@dataclass(frozen=True, slots=True)
class RecordRequest(Request):
    """``POST /v1/episodes/{id}/record/start``: one recording at a time; it ends by itself at its bounds."""

    lease: Id
    recording_id: Id
    max_s: Annotated[float, Bounds(ge=1, le=MAX_RECORD_S)] = DEFAULT_RECORD_S
    max_bytes: Annotated[int, Bounds(ge=65536, le=MAX_READ_BYTES)] = MAX_READ_BYTES
    frames_per_s: Annotated[int, Bounds(ge=1, le=MAX_FRAMES_PER_S)] = DEFAULT_FRAMES_PER_S


@dataclass(frozen=True, slots=True)
class RecordEndRequest(Request):
    """``POST /v1/episodes/{id}/record/end``: the answer is a record, its blob the MP4. May be repeated."""

    lease: Id
    recording_id: Id


@dataclass(frozen=True, slots=True)
class ReachEvent(Message):
    """One reach into the desktop in a trajectory."""

    kind: str
    step: int
    """Number of steps that were done when it began."""
    time: float
    """Time of its beginning, in Unix time (s)."""
    duration_ms: float
    outcome: str
    """``ok``, or the code of the error that it ended with."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Arguments, shortened."""


def shortened(value: Any, chars: int = MAX_REACH_ARGUMENT_CHARS) -> Any:
    """Return an argument for an event: numbers as they are, the rest as a short text."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    text = value if isinstance(value, str) else str(value)
    text = text if len(text) <= chars else f"{text[: chars - 1]}…"
    return text.encode("utf-8", "replace").decode()
