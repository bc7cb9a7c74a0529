"""OSWorld's own controllers, unchanged, against a real replica.

They come with the package desktop-env, installed without its dependencies (`pip install --no-deps
desktop-env==1.0.2`; requests, requests-toolbelt and python-dotenv besides): those are gigabytes, and only
their names are imported here.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest
from tests.support.osworld_replica import served_replica

pytestmark = [pytest.mark.desktop, pytest.mark.timeout(300)]

# What SetupController's module imports for browsers, Google Drive and proxies, none of it used here.
UNUSED = {
    "playwright.sync_api": ("sync_playwright", "TimeoutError"),
    "pydrive.auth": ("GoogleAuth",),
    "pydrive.drive": ("GoogleDrive", "GoogleDriveFile", "GoogleDriveFileList"),
    "desktop_env.evaluators.metrics.utils": ("compare_urls",),
}


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with served_replica("small", tmp_path_factory.mktemp("client")) as port:
        yield port


@pytest.fixture(scope="module")
def controllers() -> Iterator[tuple[Any, Any]]:
    """The modules of PythonController and SetupController."""
    if (
        importlib.util.find_spec("desktop_env") is None
        or importlib.util.find_spec("requests_toolbelt") is None
    ):
        pytest.skip("missing: desktop-env and requests-toolbelt")
    before = set(sys.modules)
    patch = pytest.MonkeyPatch()
    for name, members in UNUSED.items():
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            parent = ".".join(parts[:end])
            if parent not in ("desktop_env",) and parent not in sys.modules:
                patch.setitem(sys.modules, parent, ModuleType(parent))
        for member in members:
            setattr(sys.modules[name], member, object)
    python = importlib.import_module("desktop_env.controllers.python")
    setup = importlib.import_module("desktop_env.controllers.setup")
    yield python, setup
    patch.undo()
    for name in set(sys.modules) - before:
        if name.partition(".")[0] == "desktop_env":
            del sys.modules[name]


@pytest.fixture
def python(controllers: tuple[Any, Any], port: int) -> Any:
    controller = controllers[0].PythonController("127.0.0.1", port)
    controller.retry_times, controller.retry_interval = 1, 0
    return controller


@pytest.fixture
def setup(controllers: tuple[Any, Any], port: int, tmp_path: Path) -> Any:
    return controllers[1].SetupController(
        "127.0.0.1", port, cache_dir=str(tmp_path), client_password="password"
    )


def test_python_controller_observes(python: Any) -> None:
    """Screenshot, tree, terminal, platform, sizes and paths come back as the controller expects."""
    assert python.get_screenshot().startswith(b"\x89PNG")
    assert ElementTree.fromstring(python.get_accessibility_tree()).tag == "desktop-frame"
    assert python.get_terminal_output() is None
    assert python.get_vm_platform() == "Linux"
    assert python.get_vm_screen_size() == {"width": 1920, "height": 1080}
    assert python.get_vm_desktop_path() == "/home/user/Desktop"
    assert python.get_vm_wallpaper().startswith(b"\x89PNG")
    tree = python.get_vm_directory_tree("/home/user")
    assert tree["type"] == "directory"
    assert "Desktop" in [child["name"] for child in tree["children"]]


def test_python_controller_acts(python: Any) -> None:
    """Its actions are pyautogui code run in the guest; the pointer ends where it was sent."""
    python.execute_action({"action_type": "MOVE_TO", "parameters": {"x": 321, "y": 123}})
    answer = python.execute_python_command("print(pyautogui.position())")
    assert answer["output"] == "Point(x=321, y=123)\n"
    assert answer["returncode"] == 0


def test_python_controller_runs_scripts_and_reads_files(python: Any) -> None:
    """Python and bash scripts give output, errors and status; files come back as bytes or None."""
    assert python.run_python_script("print(6 * 7)")["output"] == "42\n"
    assert python.run_python_script("import nothing_like_this")["status"] == "error"
    done = python.run_bash_script("echo some > ~/Documents/x; echo done; exit 3", working_dir="/tmp")
    assert (done["status"], done["output"], done["returncode"]) == ("error", "done\n", 3)
    assert python.get_file("/home/user/Documents/x") == b"some\n"
    assert python.get_file("~/Documents/x") == b"some\n"
    assert python.get_file("/home/user/Documents/none") is None


def test_setup_controller_prepares_a_task(setup: Any, python: Any, tmp_path: Path) -> None:
    """A whole configuration: upload, execute, open, launch, activate, verify, close."""
    local = tmp_path / "note.txt"
    local.write_bytes("Grüße\n".encode() * 50_000)
    config = [
        {
            "type": "upload_file",
            "parameters": {
                "files": [{"local_path": str(local), "path": "/home/user/Documents/new/note.txt"}]
            },
        },
        {
            "type": "execute",
            "parameters": {
                "command": ["sh", "-c", "echo {SCREEN_WIDTH}; echo oops >&2"],
                "stdout": "o",
                "stderr": "e",
            },
        },
        {
            "type": "command",
            "parameters": {
                "command": "echo x >> ~/Documents/tries; wc -l < ~/Documents/tries",
                "shell": True,
                "until": {"stdout": "3"},
            },
        },
        {
            "type": "execute",
            "parameters": {"command": "echo {CLIENT_PASSWORD} | sudo -S id -un > ~/who", "shell": True},
        },
        {"type": "open", "parameters": {"path": "/home/user/Documents/new/note.txt"}},
        {"type": "launch", "parameters": {"command": "xterm -T Elsewhere -e sleep 1000"}},
        {
            "type": "execute_with_verification",
            "parameters": {
                "command": ["true"],
                "verification": {"window_exists": "elsewhere"},
                "check_interval": 0.1,
            },
        },
        {"type": "activate_window", "parameters": {"window_name": "note.txt"}},
        {
            "type": "close_window",
            "parameters": {"window_name": "xterm.XTerm", "by_class": True, "strict": True},
        },
        {"type": "sleep", "parameters": {"seconds": 0.1}},
    ]
    assert setup.setup(config) is True
    assert python.get_file("~/Documents/new/note.txt") == local.read_bytes()
    assert (tmp_path / "o").read_text() == "1920\n"
    assert (tmp_path / "e").read_text() == "oops\n"
    assert python.get_file("~/Documents/tries") == b"x\n" * 3
    assert python.get_file("~/who") == b"root\n"
    assert python.get_vm_window_size("mousepad")["width"] > 100
    titles = ""
    deadline = time.monotonic() + 10
    while "Elsewhere" in titles or "note.txt" not in titles:
        assert time.monotonic() < deadline, titles
        titles = python.run_bash_script("wmctrl -l")["output"]


def test_setup_controller_hears_of_failures(setup: Any) -> None:
    """A file that is not there and a verification that fails stop the setup with the guest's reason."""
    with pytest.raises(Exception, match="404"):
        setup.setup([{"type": "open", "parameters": {"path": "/home/user/none.txt"}}])
    parameters = {"command": "true", "verification": {"command_success": "false"}, "max_wait_time": 1}
    with pytest.raises(Exception, match="verification_failed"):
        setup.setup([{"type": "execute_with_verification", "parameters": parameters}])


@pytest.mark.full_image
def test_python_controller_records(
    controllers: tuple[Any, Any], tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    """A recording of the screen is a video that ffmpeg can read, with the frames of its time."""
    with served_replica("full", tmp_path_factory.mktemp("record")) as port:
        python = controllers[0].PythonController("127.0.0.1", port)
        python.retry_times, python.retry_interval = 1, 0
        python.start_recording()
        python.run_bash_script("xdotool mousemove 100 100; sleep 1; xdotool mousemove 900 500; sleep 1")
        python.end_recording(str(tmp_path / "video.mp4"))
        video = (tmp_path / "video.mp4").read_bytes()
        assert video[4:8] == b"ftyp"
        script = (
            "ffprobe -v error -count_frames -select_streams v -show_entries "
            "stream=width,height,nb_read_frames -of csv=p=0 /tmp/osworld_recording.mp4"
        )
        width, height, frames = python.run_bash_script(script)["output"].strip().split(",")
    assert (width, height) == ("1920", "1080")
    assert int(frames) >= 10


def test_the_wallpaper_task_step(setup: Any, python: Any, tmp_path: Path) -> None:
    """`change_wallpaper` puts the picture behind the desktop, where the getter finds it again."""
    picture = tmp_path / "picture.png"
    picture.write_bytes(python.get_screenshot())
    path = "/home/user/Pictures/picture.png"
    steps = [
        {"type": "upload_file", "parameters": {"files": [{"local_path": str(picture), "path": path}]}},
        {"type": "change_wallpaper", "parameters": {"path": path}},
    ]
    assert setup.setup(json.loads(json.dumps(steps))) is True
    deadline = time.monotonic() + 10
    while python.get_vm_wallpaper() != picture.read_bytes():
        assert time.monotonic() < deadline, "the wallpaper did not change"
