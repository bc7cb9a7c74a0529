"""What is kept of episodes: moments, the journal, the choice of what goes on."""

from __future__ import annotations

import contextlib
import io
import json
import os
import struct
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osgym_host.addresses import TcpAddress
from osgym_host.episodes.checkpoint_store import (
    MAGIC,
    CheckpointRecord,
    CheckpointStore,
    head_of,
    read_head,
)
from osgym_host.episodes.episode_state import EpisodeProgress, SavedEpisode
from osgym_host.episodes.journal import (
    LOST_S,
    MAX_PROGRESS_BYTES,
    EpisodeJournal,
    JournalEntry,
    LostEpisode,
    RequestMark,
    UnfinishedEpisode,
)
from osgym_host.episodes.recovery import GRACE_S, choose
from osgym_host.runtimes import base
from osgym_protocol.codec import WireFormatError
from osgym_protocol.host_api import EvaluationAnswer, ParentInfo
from osgym_protocol.options import ObserveOptions, SettleOptions

PROGRESS = EpisodeProgress(3, 3, "max_steps", 1, ({"op": "click", "x": 1, "y": 2},))
MOMENT = SavedEpisode(
    task={"id": "t"},
    screen=(1920, 1080),
    lease_ttl_s=60.0,
    max_steps=3,
    settle=SettleOptions(max_ms=5.0),
    observe=ObserveOptions(),
    progress=PROGRESS,
    outputs={"out": b"\x00\xff"},
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def entry(episode_id: str = "e1", generation: int = 7) -> JournalEntry:
    """An episode as it was given to its client."""
    return JournalEntry(
        episode_id,
        "secret",
        f"r{generation}",
        generation,
        1.0,
        MOMENT,
        RequestMark("q", "m", 1, 2, 3.0),
        ParentInfo("e0", 2),
    )


def test_what_is_written_is_read_again() -> None:
    """Moments and entries survive JSON, bytes and all."""
    assert SavedEpisode.from_dict(json.loads(json.dumps(MOMENT.to_dict()))) == replace(
        MOMENT, observe=ObserveOptions()
    )
    assert JournalEntry.from_dict(json.loads(json.dumps(entry().to_dict()))) == entry()


@given(JSON, st.sampled_from([*MOMENT.to_dict(), *(f"progress.{name}" for name in PROGRESS.to_dict())]))
def test_no_json_in_any_place_breaks_the_reader(value: Any, place: str) -> None:
    """It is a moment, or it is refused by one error."""
    data = MOMENT.to_dict()
    outer, _, inner = place.partition(".")
    if inner:
        data["progress"][inner] = value
    else:
        data[outer] = value
    with contextlib.suppress(WireFormatError):
        again = SavedEpisode.from_dict(data)
        assert again.progress.seq >= 0


def test_what_a_person_did_survives_too() -> None:
    """Its own numbers in the guest lie below the policy's."""
    progress = replace(PROGRESS, done=None, guest_base=-2, interventions=2, by_person=True)
    assert EpisodeProgress.from_dict(json.loads(json.dumps(progress.to_dict()))) == progress


def test_the_look_before_a_task_template_survives() -> None:
    """The guest has done one step more than the policy and persons."""
    progress = EpisodeProgress(guest_base=-1)
    assert EpisodeProgress.from_dict(json.loads(json.dumps(progress.to_dict()))) == progress


@pytest.mark.parametrize(
    "change",
    [{"guest_base": -2}, {"guest_base": -4, "interventions": 2}, {"by_person": True}, {"by_person": 1}],
)
def test_numbers_that_no_person_leaves_are_refused(change: dict[str, Any]) -> None:
    """A file of another hand is not believed."""
    with pytest.raises(WireFormatError):
        EpisodeProgress.from_dict({**PROGRESS.to_dict(), **change})


@given(st.binary(max_size=200))
def test_no_bytes_break_the_reader_of_travelling_checkpoints(data: bytes) -> None:
    """Garbage after the right beginning too."""
    for given_data in (data, head_of(CheckpointRecord("e1", None, MOMENT))[:25] + data):
        with contextlib.suppress(WireFormatError):
            read_head(io.BytesIO(given_data))


@pytest.mark.parametrize(
    "change",
    [
        '"expires_at": NaN',
        '"expires_at": 1e999',
        '"expires_at": -1',
        f'"expires_at": {10**400}',
        '"episode_id": "\\ud800"',
        '"more": "\\ud800"',
        '"more": NaN',
        '"more": ' + "[" * 100_000 + "]" * 100_000,
        f'"moment": {json.dumps(MOMENT.to_dict() | {"lease_ttl_s": 10**400})}',
        f'"moment": {json.dumps(MOMENT.to_dict() | {"task": {"id": float("nan")}})}',
    ],
)
def test_values_that_could_not_be_written_again_are_refused(change: str) -> None:
    """A checkpoint's description goes back to clients, so it must be JSON of the strict kind, and finite."""
    text = f'{{"episode_id": "e1", "expires_at": null, "moment": null, {change}}}'.encode()
    with pytest.raises(WireFormatError):
        read_head(io.BytesIO(MAGIC + struct.pack(">I", len(text)) + text))


def test_a_travelling_head_is_read_again() -> None:
    """What follows it is untouched."""
    file = io.BytesIO(head_of(CheckpointRecord("e1", 5.0, MOMENT)) + b"rest")
    assert read_head(file) == CheckpointRecord("e1", 5.0, MOMENT)
    assert file.read() == b"rest"


def test_the_journal_gives_back_what_a_killed_agent_noted(tmp_path: Path) -> None:
    """The last whole line counts; files are for their owner only; an ended episode is not there."""
    journal = EpisodeJournal(tmp_path / "episodes")
    assert journal.open(survives=True) == ([], [])
    for name in ("e1", "e2"):
        journal.make_files(name)
        journal.began(entry(name))
    journal.make_files("e3")  # its client never got it
    for seq in (4, 5):
        journal.progress("e1", replace(PROGRESS, seq=seq, step=seq, done=None))
    with (tmp_path / "episodes" / "e1" / "progress.jsonl").open("a") as file:
        file.write('{"seq": 6, "st')
    journal.ended("e2")
    modes = {
        path.stat().st_mode & 0o777 for path in (tmp_path / "episodes" / "e1").iterdir() if path.is_file()
    }
    assert modes == {0o600}
    left, lost = EpisodeJournal(tmp_path / "episodes").open(survives=True)
    assert lost == []
    assert [(one.entry, one.progress.seq) for one in left] == [(entry("e1"), 5)]
    assert abs(left[0].touched_at - time.time()) < 5
    assert not (tmp_path / "episodes" / "e3").exists()


def test_a_step_that_was_taken_back_is_not_the_last(tmp_path: Path) -> None:
    """A refused step leaves a line that says where the episode is."""
    journal = EpisodeJournal(tmp_path)
    journal.open(survives=True)
    journal.began(entry())
    journal.progress("e1", replace(PROGRESS, seq=4))
    journal.progress("e1", PROGRESS)
    ((left,), _) = EpisodeJournal(tmp_path).open(survives=True)
    assert left.progress == PROGRESS


def test_the_progress_of_a_long_episode_is_bounded(tmp_path: Path) -> None:
    """The file begins anew; the last step is always in it."""
    journal = EpisodeJournal(tmp_path)
    journal.open(survives=True)
    journal.began(entry())
    actions = tuple({"op": "type", "text": "x" * 90_000, "press_enter": False} for _ in range(3))
    for seq in range(1, 12):
        journal.progress("e1", EpisodeProgress(seq, seq, None, 0, actions))
        assert (tmp_path / "e1" / "progress.jsonl").stat().st_size < 2 * MAX_PROGRESS_BYTES
    ((left,), _) = EpisodeJournal(tmp_path).open(survives=True)
    assert left.progress.seq == 11


def test_without_survival_no_step_is_noted(tmp_path: Path) -> None:
    """The local runtime pays nothing per step; its episodes are known as lost all the same."""
    journal = EpisodeJournal(tmp_path)
    journal.open(survives=False)
    journal.began(entry())
    journal.progress("e1", PROGRESS)
    assert not (tmp_path / "e1" / "progress.jsonl").exists()
    ((left,), _) = EpisodeJournal(tmp_path).open(survives=False)
    assert left.entry.episode_id == "e1"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 2}', '{"version": 1}', "\x00" * 50])
def test_an_entry_that_cannot_be_read_costs_itself_only(tmp_path: Path, text: str) -> None:
    """It is cleared; the others are read."""
    journal = EpisodeJournal(tmp_path)
    journal.open(survives=True)
    for name in ("bad", "good"):
        journal.began(entry(name))
    (tmp_path / "bad" / "episode.json").write_text(text)
    left, _ = EpisodeJournal(tmp_path).open(survives=True)
    assert [one.entry.episode_id for one in left] == ["good"]
    assert not (tmp_path / "bad").exists()


def test_lost_episodes_are_remembered_for_a_day(tmp_path: Path) -> None:
    """Also after another start; torn lines and old ones are dropped."""
    journal = EpisodeJournal(tmp_path)
    journal.open(survives=True)

    def lost(name: str, at: float) -> LostEpisode:
        return LostEpisode(name, "l", "r1", 1, None, 2, 2, "shutdown", at)

    now = time.time()
    journal.lost([lost("new", now), lost("old", now - LOST_S - 1)])
    with (tmp_path / "lost.jsonl").open("a") as file:
        file.write('{"episode_id": "to')
    for _ in range(2):
        _, found = EpisodeJournal(tmp_path).open(survives=True)
        assert [one.episode_id for one in found] == ["new"]
    assert (tmp_path / "lost.jsonl").stat().st_mode & 0o777 == 0o600


def test_a_score_is_remembered_with_what_cannot_go_on(tmp_path: Path) -> None:
    """The score of a killed host agent is answered although the replica is gone."""
    answer = EvaluationAnswer(reward=0.5, termination_reason="done", valid_for_training=True)
    journal = EpisodeJournal(tmp_path)
    journal.open(survives=True)
    journal.began(entry("e1"))
    journal.evaluated("e1", answer)
    [left], _ = EpisodeJournal(tmp_path).open(survives=True)
    journal.lost([left.lost()])
    _, [found] = EpisodeJournal(tmp_path).open(survives=True)
    assert found.evaluation == answer


def _left(generation: int, idle_s: float) -> UnfinishedEpisode:
    return UnfinishedEpisode(entry(f"e{generation}", generation), PROGRESS, 1000.0 - idle_s)


def _record(generation: int, name: str = "") -> base.ReplicaRecord:
    address = TcpAddress("127.0.0.1", 1)
    return base.ReplicaRecord(name or f"r{generation}", generation, "d", 1, address)


def test_what_goes_on_is_what_has_its_replica_and_a_lease_that_lives() -> None:
    """Grace for the time without an agent; no replica is given to another episode's lease."""
    alive, late, gone, other = _left(1, 60), _left(2, 60 + GRACE_S + 1), _left(3, 0), _left(4, 0)
    records = [_record(1), _record(2), _record(4, "another"), _record(5)]
    kept, lost, unheld = choose([alive, late, gone, other], records, 1000.0)
    assert kept == [(alive, records[0])]
    assert lost == [late, gone, other]
    assert unheld == records[1:]


def test_the_shelf_clears_what_was_being_written(tmp_path: Path) -> None:
    """Whole ones are read; broken ones are left out, with a warning."""
    shelf = CheckpointStore(tmp_path / "c")
    assert shelf.open() == {}
    shelf.put("p1", CheckpointRecord("e1", 5.0, MOMENT))
    shelf.scratch().touch()
    (tmp_path / "c" / "p2.json").write_text("{")
    assert CheckpointStore(tmp_path / "c").open() == {"p1": CheckpointRecord("e1", 5.0, MOMENT)}
    assert sorted(os.listdir(tmp_path / "c")) == ["p1.json", "p2.json"]
    shelf.remove("p1")
    shelf.remove("p1")
    assert "p1" not in CheckpointStore(tmp_path / "c").open()
