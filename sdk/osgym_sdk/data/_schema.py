"""The columns of a data set. One row per step; row 0 of an episode is its first desktop."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

SCHEMA_VERSION = 1
FORMAT = "osgym-dataset"
VERSION_KEY = b"osgym.version"


@dataclass(frozen=True, slots=True)
class Column:
    """A column. Any may be null; ``json`` marks text that holds JSON."""

    name: str
    type: pa.DataType
    meaning: str
    per_episode: bool = False
    json: bool = False


_TEXT, _INT, _FLOAT, _BOOL = pa.string(), pa.int64(), pa.float64(), pa.bool_()
_TIME = pa.timestamp("us", tz="UTC")


def _of_episode(name: str, kind: pa.DataType, meaning: str, json: bool = False) -> Column:
    return Column(name, kind, meaning, per_episode=True, json=json)


COLUMNS: tuple[Column, ...] = (
    _of_episode("episode", _TEXT, "identity of the recording; the rows of an episode share it"),
    Column("step", _INT, "0: the first desktop, nothing was done yet; then the number of the step"),
    Column("time", _TIME, "when the row was recorded"),
    Column("frame", _TEXT, "name of the image after the step: BLAKE2b-160 of its bytes, in hex"),
    Column("frame_before", _TEXT, "name of the image that the policy saw"),
    Column("frame_format", _TEXT, "`png`, `jpeg` or `webp`"),
    Column("frame_width", _INT, "pixels of the image"),
    Column("frame_height", _INT, "pixels of the image"),
    Column("frame_hash", _TEXT, "what the desktop said: equal hashes, equal pixels"),
    Column("frame_unchanged", _BOOL, "the frame is the one before"),
    Column("frame_lost", _BOOL, "there was an image, but it could not be kept"),
    Column("text", _TEXT, "the model's words: `text` of the decision's info"),
    Column("tokens", pa.list_(_INT), "`tokens` of the info"),
    Column("logprobs", pa.list_(_FLOAT), "`logprobs` of the info"),
    Column("info", _TEXT, "the rest of the info", json=True),
    Column("requested", _TEXT, "the actions as they were asked for", json=True),
    Column("executed", _TEXT, "internal actions in pixels of the screen, as they were done", json=True),
    Column("results", _TEXT, "one for each action that was tried", json=True),
    Column("failed_index", _INT, "the action that failed; null: all were done"),
    Column("refused", _TEXT, "why the policy's action was refused; nothing was done"),
    Column("done", _TEXT, "why this was the last step"),
    Column("total_ms", _FLOAT, "the whole step; the eight parts after it sum to it"),
    Column("client_ms", _FLOAT, "in the client"),
    Column("network_ms", _FLOAT, "on the way"),
    Column("host_ms", _FLOAT, "in the host"),
    Column("guest_ms", _FLOAT, "in the guest agent, but in none of the four after it"),
    Column("input_ms", _FLOAT, "acting"),
    Column("settle_ms", _FLOAT, "waiting for the screen"),
    Column("capture_ms", _FLOAT, "taking the frame"),
    Column("encode_ms", _FLOAT, "encoding it"),
    Column("settle_policy", _TEXT, "how the screen was waited for"),
    Column("settle_reason", _TEXT, "why the wait ended"),
    Column("last_change_ms", _FLOAT, "last change of the screen, from the last action"),
    Column("final", _BOOL, "whether the frame was the last of this step, as the next step found"),
    Column("changed_after_ms", _FLOAT, "where it was not: when the screen changed"),
    _of_episode("episode_id", _TEXT, "the host's name of the episode"),
    _of_episode("task_id", _TEXT, "`id` of the task"),
    _of_episode("task", _TEXT, "the whole task", json=True),
    _of_episode("instruction", _TEXT, "`instruction` of the task"),
    _of_episode("seed", _INT, "`osgym.seed` of the task, else the writer's"),
    _of_episode("index", _INT, "of the task in its batch"),
    _of_episode("attempt", _INT, "from 1; a task that was lost is tried again"),
    _of_episode("host", _TEXT, "URL of the host agent"),
    _of_episode("runtime", _TEXT, "of the host: `local`, `qemu`"),
    _of_episode("image_digest", _TEXT, "of the golden image"),
    _of_episode("image_flavor", _TEXT, "of the golden image"),
    _of_episode("replica_id", _TEXT, "the desktop"),
    _of_episode("generation", _INT, "of the desktop: new for every clone"),
    _of_episode("screen_width", _INT, "pixels of the screen, those of `executed`"),
    _of_episode("screen_height", _INT, "pixels of the screen"),
    _of_episode("parent_episode_id", _TEXT, "what it was branched from"),
    _of_episode("parent_step", _INT, "after which of its steps"),
    _of_episode("reset_ms", _FLOAT, "from asking for a desktop to the first frame"),
    _of_episode("setup_warnings", _TEXT, "commands of the setup that failed", json=True),
    _of_episode("reward", _FLOAT, "null whenever it is not known, never 0 for it"),
    _of_episode("evaluation", _TEXT, "details of the score", json=True),
    _of_episode("termination_reason", _TEXT, "how it ended"),
    _of_episode("valid_for_training", _BOOL, "false: not the policy's doing"),
    _of_episode("error_class", _TEXT, "whose fault it is: `model`, `task`, `infra`; `policy`: reward 0"),
    _of_episode("failure_code", _TEXT, "stable name of the failure"),
    _of_episode("failure", _TEXT, "the failure in words"),
    _of_episode("failure_details", _TEXT, "more of it", json=True),
    _of_episode("note", _TEXT, "what was wrong with a last action"),
    _of_episode("invalid_actions", _INT, "how many were refused"),
    _of_episode("last_info", _TEXT, "info of a decision from which no step came", json=True),
    _of_episode("duration_s", _FLOAT, "of the attempt"),
    _of_episode("steps", _INT, "rows of the episode but the first"),
    _of_episode("complete", _BOOL, "false: the writer died, or the episode goes on"),
)

BY_NAME = {column.name: column for column in COLUMNS}
SCHEMA = pa.schema(
    [pa.field(column.name, column.type, metadata={"osgym.json": "1"} if column.json else None)
     for column in COLUMNS],
    metadata={VERSION_KEY: str(SCHEMA_VERSION).encode()},
)  # fmt: skip
