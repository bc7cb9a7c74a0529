"""SIGTERM of a trainer: leases go back as with Ctrl-C, and nobody's own handler is touched."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator

import pytest
from tests.support.fake_v1_host import FakeV1Host, Running, serving

from osgym_sdk import AsyncClient, Client


@pytest.fixture
def running() -> Iterator[Running]:
    """A host whose steps take a minute."""
    host = FakeV1Host()
    host.step_delay_s = 60.0
    with serving(host) as started:
        yield started


def until(condition: Callable[[], object], what: str, timeout_s: float = 20.0) -> None:
    """Polls until it holds."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.02)


@contextlib.contextmanager
def trainer(code: str) -> Iterator[subprocess.Popen[str]]:
    """A process that runs the code; killed at the end, if it has not ended."""
    argv = [sys.executable, "-W", "error", "-c", textwrap.dedent(code)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


TRAINERS = {
    "a step of the client without asyncio": """
        from osgym_sdk import Client
        with Client({url!r}) as client, client.episode() as episode:
            episode.step("long")
        """,
    "no with block": """
        import time
        from osgym_sdk import Client
        client = Client({url!r})
        episode = client.episode()
        episode.start()
        print("ready", flush=True)
        time.sleep(60)
        """,
    "a batch": """
        from osgym_sdk import Client
        with Client({url!r}) as client:
            list(client.run([{{"id": str(n)}} for n in range(9)], lambda obs, task, step: "x", concurrency=3))
        """,
    "a batch whose policy never returns": """
        import threading
        from osgym_sdk import Client
        with Client({url!r}) as client:
            tasks = [{{"id": str(n)}} for n in range(9)]
            list(client.run(tasks, lambda obs, task, step: threading.Event().wait(), concurrency=3))
        """,
    "asyncio": """
        import asyncio
        from osgym_sdk import AsyncClient
        async def main():
            async with AsyncClient({url!r}) as client, client.episode() as episode:
                await episode.step("long")
        asyncio.run(main())
        """,
    "a batch with asyncio": """
        import asyncio
        from osgym_sdk import AsyncClient
        async def main():
            async with AsyncClient({url!r}) as client:
                tasks = [{{"id": str(n)}} for n in range(9)]
                async for result in client.run(tasks, lambda obs, task, step: "x", concurrency=3):
                    pass
        asyncio.run(main())
        """,
    "without asyncio inside a running loop": """
        import asyncio
        from osgym_sdk import Client
        async def main():
            with Client({url!r}) as client, client.episode() as episode:
                episode.step("long")
        asyncio.run(main())
        """,
}


@pytest.mark.parametrize("name", TRAINERS)
def test_leases_are_given_back(name: str, running: Running) -> None:
    """Within seconds, whatever the trainer does when it comes; also when it comes twice at once."""
    with trainer(TRAINERS[name].format(url=running.url)) as process:
        wanted = 3 if "batch" in name else 1
        if name in ("no with block", "a batch whose policy never returns"):
            until(lambda: len(running.host.live()) == wanted, "an episode")
        else:
            until(lambda: running.host.busy == wanted, "a step")
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGTERM)
        _, stderr = process.communicate(timeout=20)
        assert time.monotonic() - began < 10
        assert process.returncode == 143, stderr
        assert running.host.live() == []


def test_another_thread_gets_the_signal(running: Running) -> None:
    """The kernel may choose any thread (one that is just starting, for instance), which wakes no other."""
    code = """
        import signal, threading, time
        from osgym_sdk import Client
        def take():
            time.sleep(1.0)
            signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
        with Client({url!r}) as client, client.episode() as episode:
            threading.Thread(target=take, daemon=True).start()
            episode.step("long")
        """
    with trainer(code.format(url=running.url)) as process:
        _, stderr = process.communicate(timeout=20)
        assert process.returncode == 143, stderr
        assert running.host.live() == []


def test_a_handler_of_the_users_is_left_alone(running: Running) -> None:
    """Set before or after the client was made, or to ignore: theirs is called, ours never."""
    code = """
        import os, signal, sys
        from osgym_sdk import Client
        seen = []
        before = sys.argv[0]
        signal.signal(signal.SIGTERM, lambda number, frame: seen.append("mine"))
        with Client({url!r}) as client:
            os.kill(os.getpid(), signal.SIGTERM)
            assert seen == ["mine"]
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with Client({url!r}) as client:
            signal.signal(signal.SIGTERM, lambda number, frame: seen.append("later"))
            os.kill(os.getpid(), signal.SIGTERM)
        assert seen == ["mine", "later"]
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with Client({url!r}) as client:
            os.kill(os.getpid(), signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
        print("ok")
        """
    with trainer(code.format(url=running.url)) as process:
        stdout, stderr = process.communicate(timeout=30)
        assert (stdout, process.returncode) == ("ok\n", 0), stderr


async def test_the_handler_is_there_while_a_client_is_open() -> None:
    """Of either kind, and gone after the last; a client may do without."""
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    with Client("http://127.0.0.1:1"):
        async with AsyncClient("http://127.0.0.1:1"):
            assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    with Client("http://127.0.0.1:1", handle_sigterm=False):
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_forked_child_dies_of_the_signal_as_before(running: Running) -> None:
    """A data loader's worker has none of the parent's clients, and must not run its blocks to their end."""
    code = """
        import os, signal, time, warnings
        from osgym_sdk import Client
        warnings.simplefilter("ignore")
        with Client({url!r}) as client:
            pid = os.fork()
            if pid == 0:
                time.sleep(60)
                os._exit(0)
            os.kill(pid, signal.SIGTERM)  # at once: it must not be lost either
            print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
            assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
        """
    with trainer(code.format(url=running.url)) as process:
        stdout, stderr = process.communicate(timeout=30)
        assert (stdout, process.returncode) == (f"{-signal.SIGTERM}\n", 0), stderr


def test_a_late_second_signal_kills(running: Running) -> None:
    """Who hangs while it cleans up is not protected by us."""
    code = """
        import time
        from osgym_sdk import Client, _sigterm
        _sigterm.AGAIN_S = 0.5
        client = Client({url!r})
        try:
            print("ready", flush=True)
            time.sleep(60)
        finally:
            time.sleep(60)
        """
    with trainer(code.format(url=running.url)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        os.kill(process.pid, signal.SIGTERM)
        time.sleep(1.0)
        assert process.poll() is None
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(10) == -signal.SIGTERM
