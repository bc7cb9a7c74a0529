"""Notices that a host will be taken away: what is understood, what follows, and how a source may fail."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osgym_host.core.draining import OPERATOR, DrainNotices
from osgym_host.notices import aws, gcp
from osgym_host.notices.sources import NoticeFile, NoticeSource, SourceFailed, file_notice, sources_of
from osgym_host.notices.watch import MOST_PAUSE_S, NoticeWatch, Watcher
from osgym_protocol.host_api import Notice


@pytest.mark.parametrize("action", ["terminate", "stop", "hibernate"])
def test_what_aws_says(action: str) -> None:
    """The example of the EC2 user guide, for each action."""
    found = aws.instance_action(json.dumps({"action": action, "time": "2017-09-18T08:22:00Z"}))
    assert found == Notice(action, 1505722920.0)
    assert aws.rebalance_time('{"noticeTime": "2020-10-27T08:22:00Z"}') == 1603786920.0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "terminate",
        "<html>",
        '{"action": "terminate"}',
        '{"action": "dance", "time": "2017-09-18T08:22:00Z"}',
        '{"action": ["stop"], "time": "2017-09-18T08:22:00Z"}',
        '{"action": "stop", "time": "2017-13-18T08:22:00Z"}',
        '{"action": "stop", "time": "2017-09-18T08:22:00"}',
        '{"action": "stop", "time": "2017-09-18T08:22:00Z\\n"}',
        '{"action": "stop", "time": 5}',
        "[" * 4000,
    ],
)
def test_what_is_no_instance_action_is_refused(text: str) -> None:
    """Nothing is guessed; what is shown of it is short and printable."""
    with pytest.raises(SourceFailed) as caught:
        aws.instance_action(text)
    assert len(str(caught.value)) < 200
    assert str(caught.value).isprintable()


def test_what_google_says() -> None:
    """A machine that moves by itself is not taken away."""
    assert [gcp.preempted(text) for text in ("TRUE", "FALSE\n")] == ["preempted", None]
    events = ("NONE", "MIGRATE_ON_HOST_MAINTENANCE", "TERMINATE_ON_HOST_MAINTENANCE")
    assert [gcp.maintenance(text) for text in events] == [None, None, "maintenance"]
    for understand in (gcp.preempted, gcp.maintenance):
        with pytest.raises(SourceFailed):
            understand("true")


def test_what_a_file_says(tmp_path: Path) -> None:
    """Its existence is enough; a kind and a deadline may stand in it."""
    assert file_notice(" \n") == Notice("operator")
    assert file_notice('{"deadline": 1700000000}') == Notice("operator", 1.7e9)
    whole = Notice("preempted", 1700000000.5)
    assert file_notice(json.dumps(whole.to_dict())) == whole
    huge = '{"deadline": 1' + "0" * 400 + "}"
    for bad in (
        *("now", '{"deadline": "5"}', '{"deadline": true}', '{"deadline": NaN}', '{"deadline": -1}', huge),
        *('{"kind": "A b"}', '{"kind": 5}', '{"dedline": 5}'),
    ):
        with pytest.raises(SourceFailed):
            file_notice(bad)


JSON = st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | st.text(), st.lists)
FIELDS = st.sampled_from(["action", "time", "noticeTime", "kind", "deadline"])


@given(st.text(max_size=300) | (JSON | st.dictionaries(FIELDS, JSON | st.just("stop"))).map(json.dumps))
def test_no_text_breaks_a_parser(text: str) -> None:
    """Whatever comes, it is a notice or a source that failed."""
    for understand in (
        aws.instance_action,
        aws.rebalance_time,
        gcp.preempted,
        gcp.maintenance,
        file_notice,
    ):
        with contextlib.suppress(SourceFailed):
            understand(text)


async def test_a_file_is_read_within_bounds(tmp_path: Path) -> None:
    """Absent, there, too long, a folder, a pipe nobody writes to, what its writer lacks, and no writer."""
    path = tmp_path / "drain"
    source = NoticeFile(path)
    assert await source.poll() is None
    path.touch()
    assert await source.poll() == Notice("operator")
    path.write_text(" " * 5000)
    with pytest.raises(SourceFailed, match="more than 4096"):
        await source.poll()
    path.unlink()
    path.mkdir()
    with pytest.raises(SourceFailed, match="cannot be read"):
        await source.poll()
    path.rmdir()
    os.mkfifo(path)
    assert await source.poll() == Notice("operator")
    path.unlink()
    (tmp_path / "drain.failing").write_text("no route\n")
    with pytest.raises(SourceFailed, match="no route"):
        await source.poll()
    with pytest.raises(SourceFailed, match="folder"):
        await NoticeFile(tmp_path / "gone" / "notice").poll()


def test_the_earliest_deadline_counts_and_each_source_takes_back_its_own() -> None:
    """Without any notice the host serves; the operator alone can be overruled by nobody but himself."""
    drain = DrainNotices()
    assert (drain.notice, drain.ends_at(5), drain.is_final) == (None, None, False)
    drain = drain.updated(OPERATOR, Notice(OPERATOR))
    assert (drain.notice, drain.ends_at(5), drain.is_final) == (Notice(OPERATOR), None, False)
    drain = drain.updated("aws", Notice("stop", 100.0))
    assert (drain.notice, drain.ends_at(5), drain.is_final) == (Notice("stop", 100.0), 95.0, True)
    drain = drain.updated(OPERATOR, Notice(OPERATOR, 50.0))
    assert (drain.notice, drain.ends_at(5), drain.is_final) == (Notice(OPERATOR, 50.0), 45.0, True)
    drain = drain.updated(OPERATOR, None).updated(OPERATOR, None)
    assert drain.notice == Notice("stop", 100.0)
    assert drain.updated("aws", None) == DrainNotices()


@given(st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.floats(0, 100))))
def test_what_holds_is_what_each_source_said_last(said: list[tuple[str, float | None]]) -> None:
    """In any order of any number of words; None takes back."""
    drain, last = DrainNotices(), {}
    for source, deadline in said:
        drain = drain.updated(source, None if deadline is None else Notice("x", deadline))
        last[source] = deadline
    held = [deadline for deadline in last.values() if deadline is not None]
    assert drain.notice == (Notice("x", min(held)) if held else None)


class Scripted(NoticeSource):
    """Says what a test gave it."""

    name = "scripted"
    pause_s = 3.0
    limit_s = 1.0

    def __init__(self, *says: Notice | Exception | None) -> None:
        self.says = list(says)

    async def poll(self) -> Notice | None:
        said = self.says.pop(0)
        if isinstance(said, Exception):
            raise said
        return said


async def test_a_source_that_fails_changes_nothing_and_is_asked_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Pauses grow to a bound, the log is not flooded, faults of ours are survived; then all is well again."""
    notice = Notice("stop", 5.0)
    told: list[tuple[str, Notice | None]] = []
    failures = [SourceFailed("no route"), TimeoutError(), KeyError("ours"), *[SourceFailed("no")] * 6]
    source = Scripted(notice, *failures, None)
    watch = NoticeWatch([source], lambda name, found: told.append((name, found)))
    (watcher,) = watch.watchers
    assert await watcher.poll() == 3.0
    assert (watch.state(), told) == ("watching", [("scripted", notice)])
    pauses = [await watcher.poll() for _ in failures]
    assert pauses == [1, 2, 4, 8, *[MOST_PAUSE_S] * 5]
    assert (watch.state(), watcher.failures, watcher.why, len(told)) == ("failing", 9, "no", 1)
    said = [r.getMessage() for r in caplog.records if "cannot be read" in r.getMessage()]
    assert [text.split("failure ")[1].split(")")[0] for text in said] == ["1", "2", "4", "8"]
    assert await watcher.poll() == 3.0
    assert (watch.state(), watcher.why, told[-1]) == ("watching", "", ("scripted", None))


async def test_a_look_that_never_ends_has_a_deadline() -> None:
    """A source that hangs counts as failing."""

    class Hangs(Scripted):
        limit_s = 0.02

        async def poll(self) -> Notice | None:
            import asyncio

            await asyncio.sleep(60)
            return None

    watcher = Watcher(Hangs(), lambda *_: None)
    assert await watcher.poll() == 1.0
    assert watcher.why == "no answer within 0.02 s"


def test_what_a_setting_may_name() -> None:
    """Two clouds, a file, nothing."""
    assert sources_of("off") == ()
    assert [source.name for source in sources_of("file:/run/osgym/drain")] == ["file"]
    for bad in ("", "azure", "file:", "file:drain", "aws:x"):
        with pytest.raises(ValueError, match="off, aws, gcp"):
            sources_of(bad)
    assert NoticeWatch((), lambda *_: None).state() == "off"
