"""Displays of a command that runs on many hosts: its lines with the host before them, or a table."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.text import Text

from osgym_infra.cli.fleet_ops.group import Finished
from osgym_infra.cli.fleet_ops.table import FAILED, REFRESHES_PER_S, HostTable
from osgym_infra.cli.fleet_ops.text import escaped
from osgym_infra.fleet.managed import ManagedHost

RUN_COLUMNS = {"HOST": 16, "STATE": 8, "EXIT": -4, "S": -6, "LAST LINE": 0}


class Silent:
    """Watcher that shows nothing (`--json`)."""

    def __enter__(self) -> Silent:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def begun(self, host: ManagedHost) -> None:
        pass

    def line(self, host: ManagedHost, text: str) -> None:
        pass

    def finished(self, done: Finished) -> None:
        pass


class Stream(Silent):
    """Watcher that prints lines of all hosts as they arrive; on a terminal, a progress line below them."""

    def __init__(self, hosts: Sequence[ManagedHost], console: Console | None = None) -> None:
        self._hosts = hosts
        self._width = max(len(host.id) for host in hosts)
        self._console = console or Console(highlight=False, soft_wrap=True)
        self._lock = threading.Lock()
        self._running = self._done = self._failed = 0
        self._live: Live | None = None

    def __enter__(self) -> Stream:
        if self._console.is_terminal and sys.stdout.isatty():
            self._live = Live(
                get_renderable=self._progress, console=self._console, transient=True,
                refresh_per_second=REFRESHES_PER_S, redirect_stdout=False, redirect_stderr=False,
            )  # fmt: skip
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def begun(self, host: ManagedHost) -> None:
        with self._lock:
            self._running += 1

    def line(self, host: ManagedHost, text: str) -> None:
        with self._lock:
            if self._live is not None:
                line = Text(f"{escaped(host.id).ljust(self._width)} | ", style="cyan").append(text, style="")
                self._console.print(line)
            else:
                sys.stdout.write(f"{escaped(host.id).ljust(self._width)} | {text}\n")
                sys.stdout.flush()

    def finished(self, done: Finished) -> None:
        with self._lock:
            self._running, self._done = max(0, self._running - 1), self._done + 1
            self._failed += done.outcome().failure is not None

    def _progress(self) -> Text:
        with self._lock:
            text = f"{self._done} of {len(self._hosts)} hosts done, {self._running} running"
            return Text(f"{text}, {self._failed} failed" if self._failed else text, style="dim")


class RunTable(Silent):
    """Watcher that shows a row for each host, with its last line."""

    def __init__(self, hosts: Sequence[ManagedHost]) -> None:
        self._table = HostTable(RUN_COLUMNS, [host.id for host in hosts])
        self._last: dict[str, str] = {}

    def __enter__(self) -> RunTable:
        self._table.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._table.__exit__(kind, error, trace)

    def begun(self, host: ManagedHost) -> None:
        self._table.update(host.id, ("running", "", "", ""))

    def line(self, host: ManagedHost, text: str) -> None:
        if text.strip():
            self._last[host.id] = text
            self._table.update(host.id, ("running", "", "", text))

    def finished(self, done: Finished) -> None:
        failure = done.outcome().failure
        last = self._last.get(done.host.id, "")
        code = "-" if done.exit_code is None else str(done.exit_code)
        note = f"{done.failure.step}: {done.failure.problem}" if done.failure else last
        cells = ("failed" if failure else "well", code, f"{done.took_s:.1f}", note)
        self._table.done(done.host.id, cells, FAILED if failure else "")
