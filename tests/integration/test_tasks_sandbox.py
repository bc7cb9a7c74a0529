"""The confined evaluator: real processes, real namespaces, real attacks on what confines them."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.waiting import until

from osgym_host.tasks.errors import EvaluatorError
from osgym_host.tasks.sandbox import MetricJob, Sandbox
from osgym_host.tasks.values import NamedFile, Value


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    """A sandbox that leaves no process behind."""
    async with Sandbox() as value:
        yield value
        zygote = value._zygote
    if zygote is not None:
        assert zygote.process.returncode is not None


def job(func: str, result: Value, expected: object, timeout_s: float = 20, mib: int = 1024) -> MetricJob:
    """A job with a rule."""
    return MetricJob(func, result, Value(data=expected), {}, timeout_s, mib << 20)


async def test_verdicts_and_errors(sandbox: Sandbox) -> None:
    """A metric's score comes back; one that raises is an error that names it."""
    right = await sandbox.run(job("exact_match", Value(data="a"), {"expected": "a"}))
    wrong = await sandbox.run(job("exact_match", Value(data="a"), {"expected": "b"}))
    assert (right.score, wrong.score) == (1, 0)
    assert "'a'" in wrong.note
    with pytest.raises(EvaluatorError, match="exact_match failed: the expected value is wrong"):
        await sandbox.run(job("exact_match", Value(data="a"), {}))


async def test_who_gives_up_stops_no_start(sandbox: Sandbox, capfd: pytest.CaptureFixture[str]) -> None:
    """The one who asks next gets the evaluator that was starting; a closed sandbox ends it without a word."""
    first = asyncio.create_task(sandbox.confinement())
    await until(lambda: sandbox._starting is not None)
    starting = sandbox._starting
    assert starting is not None and not starting.done()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert await sandbox.confinement() and starting.done()
    assert sandbox._zygote is starting.result()
    async with Sandbox() as other:
        given_up = asyncio.create_task(other.confinement())
        await asyncio.sleep(0.2)
        given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)
    assert capfd.readouterr().err == ""


async def test_files_are_handed_over_as_descriptors(sandbox: Sandbox, tmp_path: Path) -> None:
    """The confined process reads files it could not open."""
    path = tmp_path / "f"
    path.write_text("hello")
    path.chmod(0o600)
    value = Value(files=(NamedFile(path, "hello.txt"),))
    assert (await sandbox.run(job("file_contains", value, {"expected": ["ell"]}))).score == 1


async def test_symlinks_are_not_followed(sandbox: Sandbox, tmp_path: Path) -> None:
    """A link in place of a fetched file gives an error, never another file's content."""
    (tmp_path / "link").symlink_to("/etc/passwd")
    value = Value(files=(NamedFile(tmp_path / "link", "f"),))
    with pytest.raises(EvaluatorError, match="did not accept a job"):
        await sandbox.run(job("file_contains", value, {"expected": ["root"]}))
    assert (await sandbox.run(job("exact_match", Value(data="a"), {"expected": "a"}))).score == 1


async def test_a_metric_that_never_ends_is_killed(sandbox: Sandbox) -> None:
    """A pattern that backtracks for ever costs its time and no more; others run meanwhile."""
    started = time.monotonic()
    slow = job("check_list", Value(data="a" * 40), {"expect": ["(a+)+$b"]}, timeout_s=1)
    fast = job("exact_match", Value(data="a"), {"expected": "a"})
    slow_result, fast_result = await asyncio.gather(
        sandbox.run(slow), sandbox.run(fast), return_exceptions=True
    )
    assert isinstance(slow_result, EvaluatorError)
    assert "too long" in str(slow_result) or "CPU" in str(slow_result)
    assert not isinstance(fast_result, BaseException)
    assert fast_result.score == 1
    assert time.monotonic() - started < 10


async def test_memory_is_bounded(sandbox: Sandbox, tmp_path: Path) -> None:
    """A document within the zip limits that needs more memory than allowed is an error, not a 0."""
    path = tmp_path / "big.docx"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", "<a>" + "<b/>" * 8_000_000 + "</a>")
    value = Value(files=(NamedFile(path, "big.docx"),))
    with pytest.raises(EvaluatorError, match=r"memory|no verdict"):
        await sandbox.run(job("check_document_text", value, {"include": ["x"]}, mib=300))
    assert (await sandbox.run(job("exact_match", Value(data="a"), {"expected": "a"}))).score == 1


async def test_a_bomb_is_a_wrong_result(sandbox: Sandbox, tmp_path: Path) -> None:
    """A zip bomb as result scores 0 with the reason; as expected value it is an error."""
    path = tmp_path / "bomb.docx"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", b"\0" * (80 << 20))
    bomb = Value(files=(NamedFile(path, "bomb.docx"),))
    verdict = await sandbox.run(job("check_document_text", bomb, {"include": ["x"]}))
    assert verdict.score == 0
    assert "too large when unpacked" in verdict.note
    good = tmp_path / "good.txt"
    good.write_text("x")
    with pytest.raises(EvaluatorError, match="expected value is wrong"):
        await sandbox.run(
            MetricJob("compare_docx_files", Value(files=(NamedFile(good, "good.txt"),)), bomb, {})
        )


async def test_many_jobs_leave_no_descriptors(sandbox: Sandbox) -> None:
    """Forty jobs at once all come back, and the host holds no more descriptors than before."""
    await sandbox.confinement()
    before = len(os.listdir("/proc/self/fd"))
    jobs = [job("exact_match", Value(data=str(i)), {"expected": str(i)}) for i in range(40)]
    verdicts = await asyncio.gather(*(sandbox.run(j) for j in jobs))
    assert all(v.score == 1 for v in verdicts)
    assert len(os.listdir("/proc/self/fd")) == before


async def test_a_killed_zygote_is_replaced(sandbox: Sandbox) -> None:
    """When the zygote dies the next metric runs in another."""
    await sandbox.confinement()
    assert sandbox._zygote is not None
    first = sandbox._zygote.process
    first.send_signal(signal.SIGKILL)
    await first.wait()
    assert (await sandbox.run(job("exact_match", Value(data="a"), {"expected": "a"}))).score == 1
    assert sandbox._zygote.process.pid != first.pid


async def test_cancelling_leaves_the_sandbox_usable(sandbox: Sandbox) -> None:
    """A cancelled evaluation frees its place; the child ends by its own deadline."""
    await sandbox.confinement()
    slow = asyncio.create_task(
        sandbox.run(job("check_list", Value(data="a" * 40), {"expect": ["(a+)+$b"]}, timeout_s=2))
    )
    await asyncio.sleep(0.05)
    slow.cancel()
    with pytest.raises(asyncio.CancelledError):
        await slow
    assert (await sandbox.run(job("exact_match", Value(data="a"), {"expected": "a"}))).score == 1


ATTACK = """
import os, socket, sys
from osgym_host.tasks.evaluator import confine
report, parent = os.dup(1), os.getpid()
def attempts():
    def open_file(): os.open("/etc/passwd", os.O_RDONLY)
    def list_root(): assert not os.listdir("/")
    def network(): socket.socket().connect(("127.0.0.1", int(sys.argv[2])))
    def fork():
        if os.fork() == 0: os._exit(0)
    def execute(): os.execv("/bin/true", ["true"])
    def kill(): os.kill(parent, 0)
    def write(): os.open("/x", os.O_WRONLY | os.O_CREAT)
    def proc(): os.open("/proc/self/root/etc/passwd", os.O_RDONLY)
    return [open_file, list_root, network, fork, execute, kill, write, proc]
todo = attempts()
layers = frozenset(sys.argv[1].split(","))
confine.drop_root()
if "namespaces" in layers:
    confine.enter_namespaces()
pid = os.fork()
if pid == 0:
    confine.confine_self(1 << 30, 5, layers)
    for attempt in todo:
        try:
            attempt()
            os.write(report, f"{attempt.__name__}\\n".encode())
        except OSError:
            pass
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@pytest.mark.parametrize(
    ("layers", "possible"),
    [
        ("namespaces,landlock,seccomp", set()),
        ("seccomp", set()),
        ("namespaces", {"list_root"}),
        ("landlock", {"network", "kill"}),
    ],
)
def test_what_a_taken_over_parser_can_do(layers: str, possible: set[str]) -> None:
    """With all layers nothing works; each layer alone still keeps it from files."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        done = subprocess.run(
            [sys.executable, "-I", "-c", textwrap.dedent(ATTACK), layers, str(server.getsockname()[1])],
            capture_output=True,
            text=True,
            timeout=30,
        )
    if "ConfineError" in done.stderr:
        pytest.skip(f"missing: a kernel that takes a layer of {layers}: {done.stderr.splitlines()[-1]}")
    assert (done.returncode, done.stderr) == (0, "")
    assert set(done.stdout.split()) == possible
