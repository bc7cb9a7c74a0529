"""Getters of the settings and the state of applications: VLC, VS Code, GIMP."""

from __future__ import annotations

import asyncio
from typing import Annotated

from pydantic import Field

from osgym_host.tasks.getter_plugin import (
    FileName,
    FilePath,
    NoParameters,
    Parameters,
    TaskRun,
    Value,
    command_output,
    getter,
    guest_file_value,
)
from osgym_osworld.listeners import FIND_LISTENER


class VlcParameters(Parameters):
    dest: FileName = "config"


@getter(VlcParameters, reads_files=True)
async def vlc_config(run: TaskRun, parameters: VlcParameters) -> Value:
    """VLC's settings file."""
    return await guest_file_value(run, "/home/user/.config/vlc/vlcrc")


class VscodeParameters(Parameters):
    vscode_extension_command: Annotated[str, Field(min_length=1, max_length=200)]
    path: FilePath
    dest: FileName = "config"


VSCODE_KEYS = (
    "import sys, pyautogui; pyautogui.hotkey('ctrl', 'shift', 'p'); "
    "pyautogui.typewrite(sys.argv[1]); pyautogui.press('enter')"
)
EXTENSION_WRITES_S = 1.0
"""Wait for the file that OSWorld's extension of VS Code writes, as in OSWorld."""


@getter(VscodeParameters)
async def vscode_config(run: TaskRun, parameters: VscodeParameters) -> Value:
    """A file that OSWorld's extension of VS Code writes when its command is called in the palette."""
    await command_output(run, ["python", "-I", "-c", VSCODE_KEYS, parameters.vscode_extension_command])
    await asyncio.sleep(run.left("a file of VS Code", EXTENSION_WRITES_S))
    return await guest_file_value(run, parameters.path)


VLC_STATUS = (
    FIND_LISTENER
    + """
import base64, urllib.request
check(8080, {"vlc"})
asked = urllib.request.Request("http://127.0.0.1:8080/requests/status.xml",
    headers={"Authorization": "Basic " + base64.b64encode(b":password").decode()})
direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
print(direct.open(asked, timeout=10).read(262144).decode())
"""
)
"""Asked inside the guest: port and password are OSWorld's."""


@getter(VlcParameters)
async def vlc_playing_info(run: TaskRun, parameters: VlcParameters) -> Value:
    """The status that VLC's web interface gives, as an XML file."""
    status, problem = await command_output(run, ["python3", "-I", "-c", VLC_STATUS])
    if not status.strip():
        return Value(missing=True, note=f"VLC did not return its status: {problem[-200:]}")
    return Value(files=(await run.keep(status.strip().encode(), parameters.dest),))


class GimpParameters(Parameters):
    file_name: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+$")]


@getter(GimpParameters, reads_files=True)
async def gimp_config_file(run: TaskRun, parameters: GimpParameters) -> Value:
    """One of GIMP's settings files."""
    return await guest_file_value(run, f"/home/user/.config/GIMP/2.10/{parameters.file_name}")


@getter(NoParameters)
async def default_video_player(run: TaskRun, parameters: NoParameters) -> Value:
    """The desktop file of the application that opens videos."""
    return Value(data=(await command_output(run, ["xdg-mime", "query", "default", "video/mp4"]))[0])
