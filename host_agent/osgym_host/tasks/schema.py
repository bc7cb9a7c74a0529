"""The task file: OSWorld's format, read strictly where meaning is at stake.

`parse_task` is the one entry point. It raises `InvalidTask` when the file is malformed and
`UnsupportedTask` when it is well formed but needs something this host does not have; both before
anything runs. Keys that OSWorld's files carry and that mean nothing to us (`snapshot`, `trajectory`,
`proxy`, …) are kept out of the way, not refused.
"""

from __future__ import annotations

import hashlib
import re
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    model_validator,
)

from osgym_host.tasks.errors import InvalidTask, UnsupportedTask

MAX_STEPS = 200
MAX_FILES = 64
MAX_METRICS = 32
MAX_TEXT = 1_000_000
"""Longest string of a task file in characters; data carried in the task may be longer."""
MAX_INLINE_DATA = 16_000_000

Text = Annotated[str, Field(max_length=MAX_TEXT)]


def _command(value: object) -> object:
    ok = isinstance(value, str) or (isinstance(value, list) and all(isinstance(v, str) for v in value))
    if not ok or not value:
        raise ValueError("a command is a non-empty string or a non-empty list of strings")
    return value


Command = Annotated[str | list[str], BeforeValidator(_command)]


def _lenient_bool(value: object) -> object:
    """OSWorld's files write ``"true"`` where they mean ``true``."""
    if isinstance(value, str) and value.lower() in {"true", "false"}:
        return value.lower() == "true"
    return value


LenientBool = Annotated[bool, BeforeValidator(_lenient_bool)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class Download(_Model):
    """One file to fetch and put into the guest."""

    url: Annotated[str, Field(min_length=1, max_length=4000)]
    path: Annotated[str, Field(min_length=1, max_length=4000)]


class Upload(_Model):
    """One file to put into the guest: from the task-files folder, or carried in the task itself."""

    path: Annotated[str, Field(min_length=1, max_length=4000)]
    local_path: Annotated[str, Field(min_length=1, max_length=4000)] | None = None
    text: Annotated[str, Field(max_length=MAX_INLINE_DATA)] | None = None
    data_base64: Annotated[str, Field(max_length=MAX_INLINE_DATA)] | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Upload:
        if sum(v is not None for v in (self.local_path, self.text, self.data_base64)) != 1:
            raise ValueError("give exactly one of local_path, text, data_base64")
        return self


class DownloadParameters(_Model):
    files: Annotated[list[Download], Field(max_length=MAX_FILES)]


class UploadParameters(_Model):
    files: Annotated[list[Upload], Field(max_length=MAX_FILES)]


def _output_name(value: object) -> object:
    if isinstance(value, str) and (value in {".", ".."} or re.search(r"[/\\\x00-\x1f]", value)):
        raise ValueError("name a plain file: it is kept in the episode's own memory, never at a path")
    return value


OutputName = Annotated[str, Field(max_length=200), BeforeValidator(_output_name)]


class Until(_Model):
    """When a repeated command has done its work."""

    returncode: int | None = None
    stdout: Text | None = None
    stderr: Text | None = None


class ExecuteParameters(_Model):
    command: Command
    shell: LenientBool = False
    stdout: OutputName = ""
    stderr: OutputName = ""
    until: Until | None = None


class Verification(_Model):
    window_exists: Text | None = None
    command_success: Text | None = None


class ExecuteVerifiedParameters(_Model):
    command: Command
    shell: LenientBool = False
    verification: Verification = Verification()
    max_wait_time: Annotated[float, Field(ge=0, le=600)] = 10
    check_interval: Annotated[float, Field(gt=0, le=60)] = 1


class LaunchParameters(_Model):
    command: Command
    shell: LenientBool = False


class PathParameters(_Model):
    path: Annotated[str, Field(min_length=1, max_length=4000)]


class SleepParameters(_Model):
    seconds: Annotated[float, Field(ge=0, le=600)]


class WindowParameters(_Model):
    window_name: Text
    strict: LenientBool = False
    by_class: LenientBool = False


class DownloadStep(_Model):
    type: Literal["download"]
    parameters: DownloadParameters


class UploadStep(_Model):
    type: Literal["upload_file"]
    parameters: UploadParameters


class ExecuteStep(_Model):
    type: Literal["execute", "command"]
    parameters: ExecuteParameters


class ExecuteVerifiedStep(_Model):
    type: Literal["execute_with_verification"]
    parameters: ExecuteVerifiedParameters


class LaunchStep(_Model):
    type: Literal["launch"]
    parameters: LaunchParameters


class OpenStep(_Model):
    type: Literal["open"]
    parameters: PathParameters


class WallpaperStep(_Model):
    type: Literal["change_wallpaper"]
    parameters: PathParameters


class SleepStep(_Model):
    type: Literal["sleep"]
    parameters: SleepParameters


class WindowStep(_Model):
    type: Literal["activate_window", "close_window"]
    parameters: WindowParameters


class UnknownStep(_Model):
    """A well-formed step of a type this host does not carry out."""

    type: Annotated[str, Field(min_length=1, max_length=200)]
    parameters: dict[str, Any] = {}


STEP_TAGS: dict[str, str] = {
    "download": "download",
    "upload_file": "upload_file",
    "execute": "execute",
    "command": "execute",
    "execute_with_verification": "execute_with_verification",
    "launch": "launch",
    "open": "open",
    "change_wallpaper": "change_wallpaper",
    "sleep": "sleep",
    "activate_window": "window",
    "close_window": "window",
}


def _step_tag(value: object) -> str:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return STEP_TAGS.get(kind, "unknown") if isinstance(kind, str) else "unknown"


Step = Annotated[
    Annotated[DownloadStep, Tag("download")]
    | Annotated[UploadStep, Tag("upload_file")]
    | Annotated[ExecuteStep, Tag("execute")]
    | Annotated[ExecuteVerifiedStep, Tag("execute_with_verification")]
    | Annotated[LaunchStep, Tag("launch")]
    | Annotated[OpenStep, Tag("open")]
    | Annotated[WallpaperStep, Tag("change_wallpaper")]
    | Annotated[SleepStep, Tag("sleep")]
    | Annotated[WindowStep, Tag("window")]
    | Annotated[UnknownStep, Tag("unknown")],
    Discriminator(_step_tag),
]


class Getter(BaseModel):
    """How a metric gets one of its arguments; its own fields are checked in ``getters``."""

    model_config = ConfigDict(extra="allow", frozen=True)

    type: Annotated[str, Field(min_length=1, max_length=200)]

    @property
    def fields(self) -> dict[str, Any]:
        """Everything but ``type``."""
        return dict(self.model_extra or {})


class Conjunction(StrEnum):
    """How the scores of several metrics become one."""

    AND = "and"
    OR = "or"


class Check(BaseModel):
    """One metric with its arguments."""

    model_config = ConfigDict(frozen=True)

    func: str
    result: Getter | None = None
    expected: Getter | None = None
    options: dict[str, Any] = {}


class Evaluator(BaseModel):
    """How the end state is scored: `checks` are the metrics in order."""

    model_config = ConfigDict(frozen=True)

    postconfig: list[Step] = []
    conj: Conjunction = Conjunction.AND
    checks: Annotated[list[Check], Field(min_length=1, max_length=MAX_METRICS)]

    @model_validator(mode="before")
    @classmethod
    def _unroll(cls, value: object) -> object:
        if not isinstance(value, dict) or "checks" in value:
            return value
        return {
            "postconfig": value.get("postconfig") or [],
            "conj": value.get("conj", "and"),
            "checks": _unroll_checks(value),
        }

    @property
    def infeasible(self) -> bool:
        """Whether only giving up (FAIL) is right."""
        return any(check.func == "infeasible" for check in self.checks)


def _unroll_checks(value: dict[str, Any]) -> list[dict[str, Any]]:
    func = value.get("func")
    if isinstance(func, str):
        return [
            {
                "func": func,
                "result": value.get("result") or None,
                "expected": value.get("expected") or None,
                "options": value.get("options") or {},
            }
        ]
    if not isinstance(func, list) or not func or not all(isinstance(f, str) for f in func):
        raise ValueError("evaluator.func must be the name of a metric or a non-empty list of names")
    columns: dict[str, list[Any]] = {}
    for key, default in (("result", None), ("expected", None), ("options", {})):
        column = value.get(key)
        if column is None or column == {}:
            column = [default] * len(func)
        if not isinstance(column, list) or len(column) != len(func):
            raise ValueError(
                f"evaluator.func has {len(func)} metrics, so evaluator.{key} must be a list of "
                f"{len(func)} entries"
            )
        columns[key] = column
    return [
        {
            "func": name,
            "result": columns["result"][i] or None,
            "expected": columns["expected"][i] or None,
            "options": columns["options"][i] or {},
        }
        for i, name in enumerate(func)
    ]


class OsgymExtras(_Model):
    """Our own keys, under ``osgym`` in the task file."""

    flavor: Literal["small", "full"] = "full"
    apps: list[Text] = []


class Task(BaseModel):
    """A task in OSWorld's format."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    id: Annotated[str, Field(min_length=1, max_length=200)]
    instruction: Text = ""
    snapshot: str | None = None
    source: str | list[str] | None = None
    config: Annotated[list[Step], Field(max_length=MAX_STEPS)] = []
    related_apps: list[str] = []
    evaluator: Evaluator
    osgym: OsgymExtras = Field(default=OsgymExtras(), validation_alias=AliasChoices("osgym", "x_osgym"))

    @property
    def safe_id(self) -> str:
        """The id as a folder name: never a path, never longer than 64 characters.

        Ids that had to be changed get a digest of the original, so two tasks never share a name.
        """
        clean = re.sub(r"[^A-Za-z0-9_-]", "_", self.id)[:64]
        if clean == self.id:
            return clean
        digest = hashlib.sha256(self.id.encode("utf-8", "surrogatepass")).hexdigest()[:12]
        return f"{clean[:51]}-{digest}"


def validate_task(obj: object) -> Task:
    """Read a task file without asking whether this host supports it.

    Args:
        obj: the decoded JSON.

    Raises:
        InvalidTask: with one entry in ``details["problems"]`` for each wrong field.
    """
    if not isinstance(obj, dict):
        raise InvalidTask(
            f"a task is a JSON object with id, instruction, config and evaluator, not {type(obj).__name__}"
        )
    cleaned = {k: v for k, v in obj.items() if v is not None or k in {"id", "evaluator"}}
    try:
        return Task.model_validate(cleaned)
    except ValidationError as error:
        problems = [_describe(e["loc"], e["msg"]) for e in error.errors(include_url=False)]
        raise InvalidTask(
            "the task is not in OSWorld's format: " + "; ".join(p["message"] for p in problems[:5]),
            {"problems": problems[:50]},
        ) from error


def _describe(loc: tuple[int | str, ...], message: str) -> dict[str, str]:
    tags = set(STEP_TAGS.values()) | {"unknown", "str", "list[str]"}
    parts: list[str] = []
    for i, part in enumerate(loc):
        follows_index = i > 0 and isinstance(loc[i - 1], int)
        if isinstance(part, int):
            parts.append(f"[{part}]")
        elif not (follows_index and part in tags):
            parts.append(f".{part}" if parts else str(part))
    field = "".join(parts) or "task"
    message = message.removeprefix("Value error, ")
    return {"field": field, "message": f"{field}: {message}"}


def parse_task(obj: object) -> Task:
    """Read a task and make sure that this host can set it up and score it.

    Args:
        obj: the decoded JSON of a task file.

    Raises:
        InvalidTask: the file is malformed.
        UnsupportedTask: it needs a setup step, getter, metric or option that is not there.
    """
    from osgym_host.tasks.support import unsupported_features

    task = validate_task(obj)
    missing = unsupported_features(task)
    if missing:
        raise UnsupportedTask(missing)
    return task
