"""Real desktops: an answer at VLC's port is used only if VLC itself listens there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.host_process import HostProcess, running_host, wait_until

from osgym_sdk import Client, Episode, Evaluation

pytestmark = [pytest.mark.desktop, pytest.mark.timeout(300)]
PLAYS = "<root><state>playing</state></root>"
TASK: dict[str, Any] = {
    "id": "vlc",
    "instruction": "",
    "config": [],
    "evaluator": {
        "func": "check_include_exclude",
        "result": {"type": "vlc_playing_info", "dest": "status.xml"},
        "expected": {"type": "rule", "rules": {"include": ["<root>"]}},
    },
}
FORGER = f'''
import http.server
class Forger(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{PLAYS}")
http.server.HTTPServer(("127.0.0.1", 8080), Forger).serve_forever()
'''
USER_CUSTOMIZE = (
    f"import os, sys\nif '-c' in sys.orig_argv:\n    print('{PLAYS}', flush=True)\n    os._exit(0)\n"
)


def scored(episode: Episode) -> Evaluation:
    """Finish the episode and return its evaluation."""
    episode.step({"op": "done"})
    return episode.evaluate()


def listens(episode: Episode, port: int = 8080) -> None:
    """Wait until a program listens at the port."""
    command = f"grep -q ':{port:04X} .* 0A ' /proc/net/tcp /proc/net/tcp6"
    wait_until(lambda: episode.execute(command).returncode == 0, 60, f"somebody listens at port {port}")


def test_whoever_else_listens_at_vlcs_port_is_not_asked(host: HostProcess) -> None:
    """A forged status server at the port scores 0, with a note that names the program."""
    with Client(host.url) as client, client.episode(TASK) as episode:
        episode.write_file("/home/user/forger.py", FORGER.encode())
        episode.execute("setsid python3 ~/forger.py > /dev/null 2>&1 &")
        listens(episode)
        verdict = scored(episode)
    assert verdict.reward == 0.0, verdict
    assert "not vlc of the image" in verdict.details[0]["note"], verdict


def test_a_users_start_up_file_does_not_answer_for_vlc(host: HostProcess) -> None:
    """The program of the check loads no Python files of the user's."""
    with Client(host.url) as client, client.episode(TASK) as episode:
        where = episode.execute(["python3", "-c", "import site; print(site.getusersitepackages())"]).stdout
        episode.write_file(f"{where.strip()}/usercustomize.py", USER_CUSTOMIZE.encode())
        assert episode.execute(["python3", "-c", "print(1)"]).stdout.strip() == PLAYS
        verdict = scored(episode)
    assert verdict.reward == 0.0, verdict
    assert "no program listens at port 8080" in verdict.details[0]["note"], verdict


FALSE_BROWSER = """
import http.server, json
TABS = [{"id": "T", "type": "page", "title": "x", "url": "https://example.org/", "webSocketDebuggerUrl": "ws://x/"}]
class Forger(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        version = {"Browser": "Chrome/1", "webSocketDebuggerUrl": "ws://localhost:1337/devtools/browser/a"}
        body = json.dumps(version if self.path == "/json/version" else TABS).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.HTTPServer(("127.0.0.1", 1337), Forger).serve_forever()
"""


def test_whoever_else_listens_at_the_browsers_port_is_not_asked(host: HostProcess) -> None:
    """A program that lists tabs of its own is no browser: a 0 that names it."""
    tabs = {"func": "is_expected_tabs", "result": {"type": "open_tabs_info"}}
    rules = {"type": "url", "urls": ["https://example.org/"]}
    task = {**TASK, "evaluator": {**tabs, "expected": {"type": "rule", "rules": rules}}}
    with Client(host.url) as client, client.episode(task) as episode:
        episode.write_file("/home/user/forger.py", FALSE_BROWSER.encode())
        episode.execute("setsid python3 ~/forger.py > /dev/null 2>&1 &")
        listens(episode, port=1337)
        verdict = scored(episode)
    assert verdict.reward == 0.0, verdict
    assert "of the image" in verdict.details[0]["note"], verdict


@pytest.fixture(scope="module")
def full_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostProcess]:
    """A host of the full image, which has VLC."""
    folder = tmp_path_factory.mktemp("full")
    with running_host(f"listeners-{os.getpid()}", log_dir=folder, image="full", warm=1) as running:
        yield running


@pytest.mark.full_image
def test_vlc_is_asked(full_host: HostProcess) -> None:
    """The image's own player, as OSWorld's tasks start it."""
    with Client(full_host.url) as client, client.episode(TASK) as episode:
        episode.execute("setsid vlc --extraintf http --http-password password > /dev/null 2>&1 &")
        listens(episode)
        verdict = scored(episode)
    assert verdict.reward == 1.0, verdict
