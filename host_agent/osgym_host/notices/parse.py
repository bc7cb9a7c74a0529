"""What a metadata service or a file says, understood strictly. Pure; what is not understood is an error."""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import Any

from osgym_host.errors import OsgymHostError
from osgym_protocol.host_api import Notice

MOST_BYTES = 4096
"""Longer answers are refused; real ones have less than 100 bytes."""

_AWS_ACTIONS = ("terminate", "stop", "hibernate")
_AWS_TIME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z", re.ASCII)
_KIND = re.compile(r"[a-z][a-z_]{0,31}", re.ASCII)


class SourceFailed(OsgymHostError):
    """A source cannot be asked, or its answer is not understood; the message is short and printable."""


def aws_action(text: str) -> Notice:
    """Read `spot/instance-action` of the EC2 metadata: `{"action": "terminate", "time": "…Z"}`.

    Raises:
        SourceFailed: The text is not of this form.
    """
    found = _object(text)
    action, time = found.get("action"), found.get("time")
    if action not in _AWS_ACTIONS or not isinstance(time, str):
        raise SourceFailed(f"not an instance action: {shown(text)}")
    return Notice(action, _aws_time(time))


def aws_rebalance(text: str) -> float:
    """Read `events/recommendations/rebalance`: when the recommendation was made, in Unix time (s).

    Raises:
        SourceFailed: The text is not of this form.
    """
    time = _object(text).get("noticeTime")
    if not isinstance(time, str):
        raise SourceFailed(f"not a rebalance recommendation: {shown(text)}")
    return _aws_time(time)


def gcp_preempted(text: str) -> str | None:
    """Read `instance/preempted` of the Compute Engine metadata: the kind of notice, None for none.

    Raises:
        SourceFailed: It is neither TRUE nor FALSE.
    """
    match text.strip():
        case "TRUE":
            return "preempted"
        case "FALSE":
            return None
        case other:
            raise SourceFailed(f"not a preemption state: {shown(other)}")


def gcp_maintenance(text: str) -> str | None:
    """Read `instance/maintenance-event`: the kind of notice; None for none, and where the machine moves
    to another host by itself.

    Raises:
        SourceFailed: The text is not of this form.
    """
    match text.strip():
        case "TERMINATE_ON_HOST_MAINTENANCE":
            return "maintenance"
        case "NONE" | "MIGRATE_ON_HOST_MAINTENANCE":
            return None
        case other:
            raise SourceFailed(f"not a maintenance event: {shown(other)}")


def file_notice(text: str) -> Notice:
    """Read a file whose existence is the notice: empty, or `{"kind": …, "deadline": Unix time}`.

    Raises:
        SourceFailed: The text is not of this form.
    """
    if not text.strip():
        return Notice("operator")
    found = _object(text)
    kind, deadline = found.get("kind", "operator"), found.get("deadline")
    if not isinstance(kind, str) or not _KIND.fullmatch(kind) or found.keys() - {"kind", "deadline"}:
        raise SourceFailed(f"not a notice: {shown(text)}")
    if deadline is None:
        return Notice(kind)
    if isinstance(deadline, bool) or not isinstance(deadline, int | float) or not 0 <= deadline < 1e11:
        raise SourceFailed(f"not a deadline: {shown(text)}")
    return Notice(kind, float(deadline))


def shown(text: str) -> str:
    """Return what of a stranger's text may stand in a log."""
    return repr(text[:80])


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise SourceFailed(f"not a JSON object: {shown(text)}")
    return found


def _aws_time(text: str) -> float:
    try:
        if _AWS_TIME.fullmatch(text):
            return datetime.fromisoformat(text).timestamp()
    except ValueError:  # no such day or hour
        pass
    raise SourceFailed(f"not a time: {shown(text)}")
