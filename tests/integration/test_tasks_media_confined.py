"""Metrics over sounds, videos, archives and trees in the confined process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.media_files import dying_tone, melody, wav
from tests.unit import test_tasks_media_metrics as media

from osgym_host.tasks.sandbox import MetricJob, Sandbox
from osgym_host.tasks.values import NamedFile, Value

TITLE = Value(data={"title": {"method": "eq", "ref": "Song"}})
QUERY = Value(data={"sql": "SELECT sum(starred) > 0 FROM mails"})
RULE = Value(data=[{"selectors": ['page-tab-list[attr|id="tabs"]>page-tab'], "text": "in"}])
KEYS = Value(data={"expect": [{"key": ["a", 0], "method": "eq", "ref": 1.5}]})


async def test_all_of_them_work_confined(tmp_path: Path) -> None:
    """Each gives its score in the process that can open no file, start no thread and load no module."""
    files = iter(range(100))

    def kept(data: bytes) -> Value:
        path = tmp_path / f"{next(files)}"
        path.write_bytes(data)
        return Value(files=(NamedFile(path, path.name),))

    cases: list[tuple[str, bytes, Value | bytes, dict[str, Any], float]] = [
        ("compare_audios", wav(dying_tone()), wav(melody()), {}, 0.5155638),
        ("compare_videos", media.film(0, 30, 60), media.film(0, 30, 60), {}, 1),
        ("check_mp3_meta", media.tagged(TIT2="Song"), TITLE, {}, 1),
        ("compare_archive", media.tarred(media.TWO, "w:xz"), media.zipped(media.TWO), {"file_path": "d"}, 1),
        ("compare_epub", media.book("a"), media.book("a"), {}, 1),
        ("run_sqlite3", media.database(), QUERY, {}, 1),
        ("check_accessibility_tree", media.TREE.encode(), RULE, {}, 1),
        ("compare_pdf_images", media.album("red", "white"), media.album("red", "black"), {}, 0.5),
        ("compare_time_in_speedtest_results", b"a\nb,10:00\n", Value(data="900"), {}, 1),
        ("check_json", b"a: [1.5, 2001-01-01]", KEYS, {"is_yaml": True}, 1),
    ]
    async with Sandbox() as sandbox:
        for func, result, expected, options, wanted in cases:
            given = expected if isinstance(expected, Value) else kept(expected)
            verdict = await sandbox.run(MetricJob(func, kept(result), given, options))
            assert verdict.score == pytest.approx(wanted, abs=1e-5), (func, verdict.note)
        playlist = kept(b"#EXTM3U\nfile:///etc/passwd\n")
        verdict = await sandbox.run(MetricJob("compare_videos", playlist, kept(media.film(0, 30)), {}))
        assert (verdict.score, verdict.unreadable) == (0, True)
