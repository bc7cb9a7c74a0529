"""Views of a fleet's hosts, and of all of them together, for the page. Pure."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

KEPT_SAMPLES = 360
_ORDER = ("leased", "booting", "creating", "ready", "retiring")
_SUMMED = (
    "ready", "starting", "leased", "waiting", "steps", "steps_per_s", "not_final", "scored", "accepted",
    "opened", "load1", "ram_used_mib",
)  # fmt: skip
_TIMES = ("step_ms", "open_ms")
_KEY = re.compile(r"[^A-Za-z0-9.:-]+")

Row = dict[str, Any]


@dataclass(slots=True)
class HostView:
    """Last answers of one host.

    Attributes:
        key: Name of the host in the page's addresses.
        name: Name of the host for people: its own, or its address if it has none or shares it.
        error: Reason why it does not answer now; empty while it answers. Its last answers stay.
        state, pool, replicas: Answers of `/v1/host`, `/v1/pool`, `/v1/replicas`; empty before the first.
        samples: Samples of `/v1/history` by the number of their ten seconds.
    """

    key: str
    url: str
    name: str = ""
    error: str = ""
    state: Mapping[str, Any] = field(default_factory=dict)
    pool: Mapping[str, Any] = field(default_factory=dict)
    replicas: Sequence[Row] = ()
    samples: dict[int, Row] = field(default_factory=dict)
    usd_per_hour: float | None = None
    retired: Mapping[str, int] = field(default_factory=dict)
    history_s: float = float("-inf")

    @property
    def phase(self) -> str:
        """Phase of the host in one word: away, joining, draining or serving."""
        if self.error:
            return "away" if self.state else "joining"
        return "draining" if self.state.get("draining") else "serving"

    @property
    def at(self) -> str:
        """Path of the host's API and page, relative to this page."""
        return f"hosts/{self.key}/"

    def take_history(self, said: Mapping[str, Any]) -> None:
        """Add samples; drop the oldest beyond `KEPT_SAMPLES`."""
        every_s = said["every_s"]
        self.samples |= {round(one["time"] / every_s): one for one in said["samples"]}
        for number in sorted(self.samples)[:-KEPT_SAMPLES]:
            del self.samples[number]
        self.usd_per_hour, self.retired = said["usd_per_hour"], said["retired"]

    def to_dict(self) -> Row:
        last = self.samples[max(self.samples)] if self.samples else None
        return {
            "key": self.key, "name": self.name, "at": self.at, "url": self.url,
            "phase": self.phase, "error": self.error or None,
            "state": self.state or None, "pool": self.pool or None, "last": last,
            "usd_per_hour": self.usd_per_hour, "retired": self.retired,
            "steps": sum(one["steps"] for one in self.samples.values()),
            "not_final": sum(one["not_final"] for one in self.samples.values()),
            "scored": sum(one["scored"] for one in self.samples.values()),
            "accepted": sum(one.get("accepted", 0) for one in self.samples.values()),
        }  # fmt: skip


def key_of(url: str, taken: Iterable[str] = ()) -> str:
    """Return a name for a host that is valid in an address and not in `taken`.

    >>> key_of("https://10.0.0.5:20000")
    '10.0.0.5:20000'
    """
    name = _KEY.sub("-", url.partition("://")[2]).strip("-") or "host"
    others = set(taken)
    return next(key for n in range(len(others) + 1) if (key := f"{name}-{n}" if n else name) not in others)


def fleet_history(views: Iterable[HostView]) -> list[Row]:
    """Return the last hour of all hosts, the oldest sample first.

    Counts and loads are sums over the hosts; of times, `p50` is the mean of the hosts' medians, each by its
    steps, and `p95` that of the slowest host: nowhere is one step in twenty slower.
    """
    by_number: dict[int, list[Row]] = {}
    for view in views:
        for number, sample in view.samples.items():
            by_number.setdefault(number, []).append(sample)
    return [_summed(by_number[number]) for number in sorted(by_number)[-KEPT_SAMPLES:]]


def _summed(samples: Sequence[Row]) -> Row:
    found: Row = {name: round(sum(one.get(name, 0) for one in samples), 2) for name in _SUMMED}
    found["time"] = max(one["time"] for one in samples)
    for name, count in zip(_TIMES, ("steps", "opened"), strict=True):
        known = [one for one in samples if one[name]["p50"] is not None]
        weight = sum(one[count] for one in known)
        p50 = sum(one[name]["p50"] * one[count] for one in known) / weight if weight else None
        found[name] = {
            "p50": None if p50 is None else round(p50, 1),
            "p95": max((one[name]["p95"] for one in known), default=None),
        }
    return found


def find_replicas(views: Iterable[HostView], query: str, state: str, limit: int) -> Row:
    """Return at most `limit` matching replicas, leased ones first, and the number of all.

    Args:
        query: Words that a row must contain, all of them, anywhere.
        state: State that a replica must have; empty for any.
    """
    words = query.lower().split()
    counts: dict[str, int] = {}
    found: list[tuple[int, HostView, Row]] = []
    for view in views:
        for row in view.replicas:
            counts[row["state"]] = counts.get(row["state"], 0) + 1
            if state in ("", row["state"]) and _has(words, view, row):
                found.append(
                    (_ORDER.index(row["state"]) if row["state"] in _ORDER else len(_ORDER), view, row)
                )
    found.sort(key=lambda one: (one[0], one[1].key, _number(one[2]["replica_id"])))
    rows = [{**row, "at": view.at, "host": view.name} for _, view, row in found[:limit]]
    return {"rows": rows, "found": len(found), "counts": counts}


def _has(words: Sequence[str], view: HostView, row: Row) -> bool:
    if not words:
        return True
    parts = (row["replica_id"], row["state"], row["reason"], row["task_id"], row["episode_id"])
    text = " ".join(str(part) for part in (*parts, view.key, view.name) if part).lower()
    return all(word in text for word in words)


def _number(replica_id: str) -> tuple[int, str]:
    digits = "".join(c for c in replica_id if c.isdecimal() and c.isascii())[:12]
    return (int(digits or 0), replica_id)


def name_hosts(views: Collection[HostView]) -> None:
    """Set the names for people; agents of one machine may share a name, and get their keys instead."""
    own = [view.state.get("host_id") for view in views]
    counts = Counter(own)
    for view, name in zip(views, own, strict=True):
        view.name = str(name) if name and counts[name] == 1 else view.key


def merge_runs(found: Iterable[Sequence[Row]]) -> list[Row]:
    """Merge the runs of all hosts by name, the most recently active first.

    `tasks` is a lower bound: the largest number of one host, since several hosts may play the same tasks.
    """
    runs: dict[str, Row] = {}
    for row in itertools.chain.from_iterable(found):
        before = runs.get(row["run"])
        if before is None:
            runs[row["run"]] = dict(row)
            continue
        scored = before["scored"] + row["scored"]
        total = sum(one["mean_reward"] * one["scored"] for one in (before, row) if one["scored"])
        for name in ("episodes", "active", "steps", "scored", "solved", "lost"):
            before[name] += row[name]
        before["tasks"] = max(before["tasks"], row["tasks"])
        before["mean_reward"] = round(total / scored, 4) if scored else None
        before["began_at"] = min(before["began_at"], row["began_at"])
        before["last_at"] = max(before["last_at"], row["last_at"])
    return sorted(runs.values(), key=lambda one: (one["active"] > 0, one["last_at"]), reverse=True)


def merge_run_episodes(found: Iterable[tuple[HostView, Sequence[Row]]]) -> list[Row]:
    """Merge the episodes of one run on all hosts by their end; open ones come last."""
    rows = [{**row, "at": view.at, "host": view.name} for view, said in found for row in said]
    return sorted(rows, key=lambda row: (row["ended_at"] is None, row["ended_at"] or row["began_at"]))


def merge_episodes(found: Iterable[tuple[HostView, Sequence[Row]]], limit: int) -> list[Row]:
    """Merge the latest episodes of all hosts: open ones first, then by time, the newest first."""
    rows = [{**row, "at": view.at, "host": view.name} for view, said in found for row in said]
    rows.sort(key=lambda row: (row["ended_at"] is not None, -(row["ended_at"] or row["began_at"])))
    return rows[:limit]
