"""Whose fault a failed metric is: a result that breaks it scores 0, what is ours has no reward.

Real confined processes; the checks go through `evaluate` with a guest that hands out the bytes.
"""

from __future__ import annotations

import asyncio
import io
import zipfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import openpyxl
import pytest

from osgym_host.guest_client import GuestClient, GuestRefused, GuestTimeout, GuestUnreachable
from osgym_host.tasks.context import TaskContext, TaskRun
from osgym_host.tasks.control import control_files
from osgym_host.tasks.downloads import DownloadCache
from osgym_host.tasks.errors import DeadlineExceeded, EvaluatorError, TaskError
from osgym_host.tasks.evaluate import LastAction, TaskEvaluation, evaluate
from osgym_host.tasks.evaluator.registry import METRICS, MetricEnd
from osgym_host.tasks.parse import parse_task
from osgym_host.tasks.policy import TaskPolicy
from osgym_host.tasks.sandbox import MetricFailed, MetricJob, Sandbox
from osgym_host.tasks.values import Value
from osgym_protocol.codes import GuestErrorCode

pytestmark = pytest.mark.timeout(120)


class Guest:
    """Answers a check: what a file holds, or which error a call ends with."""

    def __init__(self, answer: bytes | Exception, *, healthy: bool = True, takes_s: float = 0.0) -> None:
        self.answer = answer
        self.healthy = healthy
        self.takes_s = takes_s
        self.asked: list[str] = []

    async def _give(self, what: str) -> Any:
        self.asked.append(what)
        await asyncio.sleep(self.takes_s)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def file(self, path: str, **_: Any) -> bytes:
        return cast("bytes", await self._give(path))

    async def execute(self, *_: Any, **__: Any) -> Any:
        return await self._give("execute")

    async def health(self, **_: Any) -> Any:
        if self.asked and not self.healthy:
            raise GuestUnreachable("gone", delivered=False)
        return type("Health", (), {"last_seq": 0})

    async def ready(self, **_: Any) -> None:
        return None


def refused(code: str, status: int = 500) -> GuestRefused:
    """A refusal of the guest agent."""
    return GuestRefused(status, code, f"it says {code}", {})


Check = Callable[..., Any]


@pytest.fixture
async def check(tmp_path: Path) -> AsyncIterator[Check]:
    """Scores one check on a guest, by the same code as an episode."""
    async with Sandbox() as sandbox:

        async def run(
            guest: Guest,
            func: str,
            expected: dict[str, Any],
            *,
            mib: int = 1024,
            cpu_s: float = 3,
            total_s: float = 60,
            **evaluator: Any,
        ) -> TaskEvaluation:
            policy = TaskPolicy(
                task_files_dir=tmp_path / "ours",
                evaluation_cpu_s=cpu_s,
                evaluation_memory_bytes=mib << 20,
            )
            (tmp_path / "ours").mkdir(exist_ok=True)
            (tmp_path / "cache").mkdir(exist_ok=True)
            downloads = DownloadCache(tmp_path / "cache", policy)
            context = TaskContext(tmp_path, policy, downloads, sandbox)
            result = {"type": "vm_file", "path": "/r", "dest": "r"}
            made = {"func": func, "result": result, "expected": expected, **evaluator}
            task = parse_task({"id": "t", "instruction": "", "evaluator": made})
            deadline = asyncio.get_running_loop().time() + total_s
            return await evaluate(task, cast("GuestClient", guest), context, LastAction.DONE, deadline)

        yield run


def rule(**rules: Any) -> dict[str, Any]:
    """An expected value."""
    return {"type": "rule", "rules": rules}


def packed(members: dict[str, str | bytes]) -> bytes:
    """A zip archive."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def workbook(sheet: str = "", **others: bytes) -> bytes:
    """A workbook whose sheet has this XML in it."""
    buffer = io.BytesIO()
    openpyxl.Workbook().save(buffer)
    with zipfile.ZipFile(io.BytesIO(buffer.getvalue())) as archive:
        members: dict[str, str | bytes] = {name: archive.read(name) for name in archive.namelist()}
    head = '<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main">'
    members["xl/worksheets/sheet1.xml"] = f"{head}{sheet}</worksheet>"
    return packed({**members, **others})


CELL = "<sheetData><row r='1'><c r='A1'><v>1</v></c></row></sheetData>"
CELLS = rule(cells={"A1": "x"})
TEXT = rule(include=["x"])
MERGED = workbook(CELL + "<mergeCells count='1'><mergeCell ref='A1:XFD1048576'/></mergeCells>")
DEEP_XML = "<a>" + "<b/>" * 8_000_000 + "</a>"


@pytest.mark.parametrize(
    ("data", "func", "expected", "mib"),
    [
        pytest.param(MERGED, "check_xlsx_cells", CELLS, 1024, id="merge of all cells"),
        pytest.param(workbook("<sheetData"), "check_xlsx_cells", CELLS, 1024, id="broken XML"),
        pytest.param(
            workbook("<sheetData><row r='1'><c r='A1' t='d'><v>2-99</v></c></row></sheetData>"),
            "check_xlsx_cells",
            CELLS,
            1024,
            id="no date",
        ),
        pytest.param(
            workbook("<sheetData><row r='1048576'><c r='XFD1048576'><v>1</v></c></row></sheetData>"),
            "check_xlsx_cells",
            CELLS,
            1024,
            id="far cell",
        ),
        pytest.param(packed({"word/document.xml": DEEP_XML}), "check_document_text", TEXT, 300, id="memory"),
        pytest.param(
            packed(
                {
                    "content.xml": "<a xmlns:text='urn:oasis:names:tc:opendocument:xmlns:text:1.0'>"
                    "<text:p>a<text:s text:c='\u00b2'/></text:p></a>"
                }
            ),
            "check_document_text",
            TEXT,
            1024,
            id="superscript number",
        ),
        pytest.param(b"PK\3\4" + bytes(100), "check_xlsx_cells", CELLS, 1024, id="broken zip"),
        pytest.param(b"[" * 200_000, "check_json", rule(expect=[]), 1024, id="deep JSON"),
        pytest.param(
            b'{"a":' + b"9" * 1_000_000 + b"}",
            "check_json",
            rule(expect=[{"key": ["a"], "method": "eq", "ref": 1}]),
            1024,
            id="huge number",
        ),
        pytest.param(
            b'{"a":["b"]}', "check_direct_json_object", rule(expected={"a": {}}), 1024, id="other type"
        ),
        pytest.param(b"\x89PNG\r\n\x1a\n" + bytes(50), "check_image_size", rule(width=1), 1024, id="image"),
        pytest.param(b"a" * 40 + b"!\n", "check_list", rule(expect=["^(a+)+$"]), 1024, id="backtracking"),
        pytest.param(b"\xff\xfe", "check_include_exclude", TEXT, 1024, id="no text"),
    ],
)
async def test_a_result_that_breaks_its_metric_scores_0(
    check: Check, data: bytes, func: str, expected: dict[str, Any], mib: int
) -> None:
    """Memory, CPU time, exceptions, crashes: with the reason, never as a failure of ours."""
    verdict = await check(Guest(data), func, expected, mib=mib)
    assert verdict.reward == 0.0
    assert len(verdict.checks[0].note) > 10


@pytest.mark.parametrize(
    "error",
    [
        refused("cannot_read"),
        refused("not_a_file", 400),
        refused("no_such_file", 404),
        refused("answer_too_large", 502),
        refused("timeout"),
        refused("error"),
        GuestUnreachable("the guest closed the connection inside a body", delivered=True),
        GuestTimeout("no answer", delivered=True, timeout_s=60.0),
    ],
    ids=lambda error: getattr(error, "code", type(error).__name__),
)
async def test_a_result_that_cannot_be_read_scores_0(check: Check, error: Exception) -> None:
    """No right to read it, a loop of links, a folder, a file that shrinks while it is read."""
    verdict = await check(Guest(error), "check_include_exclude", TEXT)
    assert verdict.reward == 0.0
    assert verdict.checks[0].note


@pytest.mark.parametrize("code", [GuestErrorCode.INTERNAL, GuestErrorCode.BUSY, GuestErrorCode.NOT_FOUND])
async def test_an_agent_that_does_not_do_its_work_is_no_result(check: Check, code: GuestErrorCode) -> None:
    """Its own fault says nothing of the desktop."""
    with pytest.raises(EvaluatorError):
        await check(Guest(refused(code)), "check_include_exclude", TEXT)


async def test_an_agent_that_is_gone_loses_the_replica(check: Check) -> None:
    """What broke the connection is not blamed on the file when the agent does not answer any more."""
    gone = GuestUnreachable("connection reset", delivered=True)
    with pytest.raises(GuestUnreachable, match="connection reset"):
        await check(Guest(gone, healthy=False), "check_include_exclude", TEXT)


@pytest.mark.parametrize(
    ("func", "expected", "text"),
    [
        ("check_list", rule(expect=["("]), "pattern"),
        ("check_include_exclude", {"type": "rule", "rules": ["a"]}, "rule"),
        ("compare_config", rule(), "no 'expected'"),
        ("check_json", rule(expect=[{"key": ["a"], "method": "eq"}]), "no 'ref'"),
        ("check_json", rule(expect=[{"key": ["a"], "method": "like", "ref": 1}]), "like"),
    ],
)
async def test_a_task_that_is_wrong_has_no_reward(
    check: Check, func: str, expected: dict[str, Any], text: str
) -> None:
    """Whatever the result is; the message says what is wrong."""
    with pytest.raises(EvaluatorError, match=text):
        await check(Guest(b'{"a": 1}'), func, expected)


async def test_an_expected_file_that_is_broken_has_no_reward(check: Check, tmp_path: Path) -> None:
    """Also when the result is broken in a way that uses up all memory first."""
    bad, good = tmp_path / "ours" / "bad.xlsx", tmp_path / "ours" / "good.xlsx"
    bad.parent.mkdir()
    bad.write_bytes(MERGED)
    good.write_bytes(workbook(CELL))
    for result in (workbook(CELL), MERGED):
        with pytest.raises(EvaluatorError, match="also fails on a good result"):
            await check(Guest(result), "compare_table", _ours(bad))
    assert (await check(Guest(workbook(CELL)), "compare_table", _ours(good))).reward == 1.0
    assert (await check(Guest(MERGED), "compare_table", _ours(good))).reward == 0.0


def _ours(path: Path) -> dict[str, Any]:
    return {"type": "cloud_file", "path": f"file:///{path.name}", "dest": path.name}


async def test_an_expected_file_that_is_gone_has_no_reward(check: Check, tmp_path: Path) -> None:
    """A download that fails is the host's or the task's."""
    with pytest.raises(TaskError):
        await check(Guest(b"a"), "compare_text_file", _ours(tmp_path / "ours" / "gone.txt"))


async def test_an_expected_value_in_the_replica_is_the_policys(check: Check) -> None:
    """A policy may remove it: then nothing was reached, and that is a 0."""
    expected = {"type": "vm_file", "path": "/e", "dest": "e"}
    verdict = await check(Guest(MERGED), "compare_table", expected)
    assert verdict.reward == 0.0


async def test_what_stops_a_metric_from_outside_is_ours(tmp_path: Path) -> None:
    """The wall clock depends on what else the host does; CPU time does not, and each has its name."""
    slow = MetricJob("check_list", Value(data="a" * 40 + "!"), Value(data={"expect": ["^(a+)+$"]}), {})
    async with Sandbox() as sandbox:
        from dataclasses import replace

        with pytest.raises(MetricFailed) as by_clock:
            await sandbox.run(replace(slow, timeout_s=0.5, cpu_s=30))
        with pytest.raises(MetricFailed) as by_cpu:
            await sandbox.run(replace(slow, timeout_s=60, cpu_s=1))
    assert (by_clock.value.end, by_cpu.value.end) == (MetricEnd.OUTSIDE, MetricEnd.CPU_TIME)


async def test_a_slow_replica_cannot_end_a_check(check: Check) -> None:
    """Time that the replica used up is its own; time that was gone before is not."""
    hanging = {"type": "vm_command_line", "command": ["hang"]}
    slow = Guest(refused("timeout"), takes_s=0.7)
    verdict = await check(
        slow,
        ["exact_match"] * 3,
        [rule(expected="a")] * 3,
        result=[hanging] * 3,
        conj="or",
        total_s=1.0,
    )
    assert verdict.reward == 0.0
    assert "the replica took" in verdict.checks[-1].note
    with pytest.raises(DeadlineExceeded):
        await check(Guest(refused("timeout")), "check_include_exclude", TEXT, total_s=1.0)


async def test_a_postconfig_that_the_replica_refuses_is_a_0(check: Check) -> None:
    """Half a preparation is not checked: a policy could have earned what is left by breaking it."""
    steps = [{"type": "execute", "parameters": {"command": ["x"]}}]
    ours = [{"type": "upload_file", "parameters": {"files": [{"path": "a", "data_base64": "?"}]}}]
    guest = Guest(refused("cannot_start"))
    verdict = await check(guest, "check_include_exclude", TEXT, postconfig=steps)
    assert verdict.reward == 0.0
    assert "postconfig[0]" in verdict.checks[0].note
    assert guest.asked == ["execute"]
    with pytest.raises(TaskError, match="base64"):
        await check(guest, "check_include_exclude", TEXT, postconfig=ours)


GOOD_RULES: dict[str, Any] = {
    "expected": "a",
    "expect": [],
    "include": ["a"],
    "cells": {"A1": "x"},
    "width": 1,
    "key": "a",
    "value": "b",
    "minutes": 1,
    "method": "eq",
    "font_name": "a",
    "locale_set": ["a"],
    "type": "blackish",
    "recording_file_path": "a",
    "expected_global_key_play_pause": "1",
    **{
        f"expected_{name}": "1"
        for name in (
            "qt_bgcone",
            "qt_max_volume",
            "qt_minimal_view",
            "one_instance_when_started_from_file",
            "play_and_exit",
        )
    },
}


_TAB: dict[str, Any] = {"type": "url", "url": "https://example.org", "urls": ["https://example.org"]}
BROWSER_RULES: dict[str, dict[str, Any]] = {
    "check_enabled_experiments": {"type": "names", "names": ["a"]},
    "check_font_size": {"type": "value", "value": 16},
    "check_history_deleted": {"type": "keywords", "keywords": ["a"]},
    "is_added_to_steam_cart": {"items": ["a"]},
    "is_cookie_deleted": {"type": "domains", "domains": ["example.org"]},
    "is_expected_active_tab": _TAB,
    "is_expected_active_tab_approximate": _TAB,
    "is_expected_bookmarks": {"type": "bookmark_bar_folders_names", "names": ["a"]},
    "is_expected_installed_extensions": {"expected": ["a"]},
    "is_expected_search_query": {"expect": {"pattern": "a"}},
    "is_expected_tabs": _TAB,
    "is_expected_url_pattern_match": {"expected": ["a"]},
    "is_shortcut_on_desktop": {"type": "name", "name": "a"},
}

DOCUMENT_RULES: dict[str, dict[str, Any]] = {
    "compare_image_text": {"type": "text", "text": "a"},
    "check_csv": {},
    "check_formulas": {"cells": {"Sheet1!A1": "=1"}},
    "check_text_formats": {"formats": {"bold": []}},
    "check_text_lines": {"lines": ["a"]},
    "check_gnome_favorite_apps": {"expected": ["a"]},
    "check_image_file_size": {"max_size": 1},
    "check_line_number": {"expected": "1"},
    "check_mp3_meta": {"title": {"method": "eq", "ref": "a"}},
    "check_page_number_colors": {"color": "red"},
    "check_pdf_pages": {"relation": "eq", "ref_value": 1},
    "check_presenter_console_disable": {},
    "check_slide_orientation_Portrait": {},
    "check_thunderbird_filter": {},
    "check_thunderbird_prefs": {"expect": {"a": {"method": "eq", "ref": "b"}}},
    "check_transition": {"slide_idx": 0, "transition_type": "dissolve"},
    "compare_conference_city_in_order": {"expected": ["a"] * 21},
    "check_strikethrough": {"slide_index_s": [0], "shape_index_s": [0], "paragraph_index_s": [0]},
    "compare_font_names": {"font_name": "a"},
    "evaluate_presentation_fill_to_rgb_distance": {"rgb": [0, 0, 0]},
    "fuzzy_place_math": {"expected": ["a"]},
    "is_first_line_centered": {},
    "is_vlc_playing": {"type": "file_name", "file_name": "a"},
    "run_sqlite3": {"sql": "SELECT 1"},
}
BY_OTHERS = frozenset({"check_accessibility_tree", "compare_time_in_speedtest_results"})
"""What is expected of these is a list, or a number."""


def expected_of(func: str, file: Value) -> Value:
    """What a metric is given beside a control: rules, where it reads rules, else the control itself."""
    if func in BY_OTHERS:
        return Value(data=[{"xpath": "//a"}] if func == "check_accessibility_tree" else "60")
    rules = BROWSER_RULES.get(func) or DOCUMENT_RULES.get(func)
    compares = METRICS[func].function.__module__.rpartition(".")[2] in {
        "archives", "desktop", "documents_checks", "documents_marks", "files_compare", "folders",
        "images_compare", "slides_checks", "slides_compare", "slides_kept", "sound_and_video",
        "vlc_settings", "workbook_kept",
    }  # fmt: skip
    compares = compares or func.startswith("compare_") or func == "check_document_kept"
    if rules is None and compares and func not in OF_RULES:
        return file
    rules = dict(rules or GOOD_RULES)
    if func in {"check_direct_json_object", "check_json_settings", "check_json_keybindings"}:
        rules["expected"] = {"a": 1}
    if func == "check_xml_parts":
        rules["parts"] = [{"part": "*.xml", "path": "."}]
    return Value(data=rules)


OF_RULES = {"compare_config", "compare_answer", "check_html_background_image", "compare_image_text"}


NEED_OTHERS = frozenset(
    {
        "check_by_verifier",
        "check_python_file_by_test_suite",
        "compare_epub",
        "compare_unique_train_records",
        "compare_videos",
        "is_gold_text_included_in_pdf",
        "is_in_vm_clickboard",
    }
)
"""Metrics that can read no control: their expected value is of another kind than their result, or there are
two, or they read no file, or such a file is too large to be a control."""


@pytest.mark.timeout(400)  # more than a hundred metrics, a process each
async def test_every_metric_survives_the_controls(tmp_path: Path) -> None:
    """Each can read at least one of them, so that its own fault would show there; none breaks it."""
    unread, broken = [], []
    async with Sandbox() as sandbox:
        policy = TaskPolicy()
        context = TaskContext(tmp_path, policy, DownloadCache(tmp_path, policy), sandbox)
        run = TaskRun(cast("GuestClient", Guest(b"")), context, "t", 0.0)
        files = [Value(files=(await run.keep(data, name),)) for name, data in control_files().items()]
        for func, kind in METRICS.items():
            if not kind.takes_result or kind.unsupported({}):
                continue
            read = 0
            for file in files:
                try:
                    verdict = await sandbox.run(MetricJob(func, file, expected_of(func, file), {}))
                except MetricFailed as error:
                    if error.end is MetricEnd.EXPECTED:  # the control is no expected value of this metric
                        continue
                    broken.append(f"{func} of {file.files[0].name}: {error.message[:100]}")
                else:
                    read += not verdict.unreadable
            if not read:
                unread.append(func)
    assert not broken, "\n".join(broken)
    assert set(unread) == NEED_OTHERS
