#!/usr/bin/env python3
"""Puts files and programs into a machine that Packer has started, and switches it off.

There is no sshd in the golden image: its guest agent does what is asked here (OSWorld's endpoints), and sudo
asks for no password. Python's standard library only. What is to be done comes by environment variables, as
`guest-qemu.pkr.hcl` sets them. Ends with 1, and says why, when anything fails; Packer then keeps nothing.
"""

import contextlib
import http.client
import io
import json
import os
import sys
import tarfile
import time
import tomllib
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

IMAGES = Path(__file__).resolve().parent.parent
FINISH = IMAGES / "vm" / "provision" / "90-finish"
"""The local bake's own last script, run after all others here too."""

BAKE_FOLDER = "osgym-bake"
"""Where scripts stand inside, as in the local bake; removed at the end."""

UPLOADED = "/var/tmp/osgym-bake.tar"  # noqa: S108  # in the guest
SCRIPT_TIMEOUT_S = 600
"""For each program, as in the local bake; the guest agent grants no more."""
READY_TIMEOUT_S = 300
POLL_S = 0.5
CONSOLE_TAIL_BYTES = 3000
END = f"rm -rf /{BAKE_FOLDER} {UPLOADED} /var/lib/apt/lists/* && fstrim / && sync"


class ProvisionFailed(Exception):
    """What did not work, for people."""


class Guest:
    """The guest agent of one machine."""

    def __init__(self, port: int, token: str) -> None:
        self._port = port
        self._headers = {"Authorization": f"Bearer {token}"}

    def call(
        self, path: str, body: bytes | None = None, kind: str = "application/json", timeout_s: float = 30.0
    ) -> str:
        """The answer's body, of a POST when there is something to send.

        Raises:
            OSError: there is no answer.
            ProvisionFailed: it is an error.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=timeout_s)
        with contextlib.closing(connection):
            try:
                connection.request(
                    "GET" if body is None else "POST", path, body, {**self._headers, "Content-Type": kind}
                )
                answer = connection.getresponse()
                text = answer.read().decode(errors="replace")
            except http.client.HTTPException as error:
                raise ConnectionError(f"no answer to {path}: {error!r}") from error
        if answer.status != 200:
            raise ProvisionFailed(f"{path} was answered with {answer.status}: {text[:500]}")
        return text

    def ask(self, path: str, body: object, timeout_s: float = 30.0) -> str:
        """The same with JSON."""
        return self.call(path, json.dumps(body).encode(), timeout_s=timeout_s)

    def upload(self, path: str, data: bytes) -> None:
        """Writes a file of the ordinary user."""
        mark = uuid.uuid4().hex
        fields = (
            f'--{mark}\r\nContent-Disposition: form-data; name="file_path"\r\n\r\n{path}\r\n'
            f'--{mark}\r\nContent-Disposition: form-data; name="file_data"; filename="file"\r\n\r\n'
        )
        body = fields.encode() + data + f"\r\n--{mark}--\r\n".encode()
        self.call("/setup/upload", body, f"multipart/form-data; boundary={mark}", timeout_s=600)

    def root(self, name: str, argv: Sequence[str]) -> None:
        """Runs a program as root to its end, and prints what it says.

        Raises:
            ProvisionFailed: it ended with another code than 0.
        """
        body = {"command": ["sudo", "-n", *argv], "timeout": SCRIPT_TIMEOUT_S}
        done = json.loads(self.ask("/setup/execute", body, SCRIPT_TIMEOUT_S + 60))
        print(f"provision: {name}", flush=True)
        if said := f"{done.get('output', '')}{done.get('error', '')}".strip():
            print(said, flush=True)
        if done.get("returncode") != 0:
            raise ProvisionFailed(f"{name} ended with {done.get('returncode')}")


def environment(definition: Mapping[str, Any]) -> dict[str, str]:
    """What programs learn about the image, named as in the local bake; the flavor is not known here."""
    user = definition["user"]
    return {
        "OSGYM_SCREEN": "x".join(str(pixels) for pixels in definition["screen"]),
        "OSGYM_USER": user["name"],
        "OSGYM_UID": str(user["uid"]),
        "OSGYM_HOME": user["home"],
        "OSGYM_PASSWORD": user["password"],
        "OSGYM_LOCALE": definition["locale"],
        "OSGYM_TIMEZONE": definition["timezone"],
        "OSGYM_EPOCH": str(definition["source_date_epoch"]),
        "DEBIAN_FRONTEND": "noninteractive",
    }


def archive(files: Path | None, programs: Mapping[str, Path], home: str, uid: int) -> bytes:
    """A tar over the root file system: the folder's files, and programs by the names they get.

    Args:
        programs: name inside to the program here.
        home: what is below it belongs to the user, all else to root.
        uid: the user's.
    """
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:

        def add(path: Path, name: str) -> None:
            info = tarfile.TarInfo(name)
            info.uid = info.gid = uid if f"/{name}".startswith(f"{home}/") else 0
            info.mtime = int(path.lstat().st_mtime)
            if path.is_symlink():
                info.type, info.linkname = tarfile.SYMTYPE, str(path.readlink())
                tar.addfile(info)
            elif path.is_dir():
                info.type, info.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(info)
            elif path.is_file():
                info.mode = 0o755 if name in programs or os.access(path, os.X_OK) else 0o644
                data = path.read_bytes()
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
            else:
                raise ProvisionFailed(f"{path} is not a file, folder or link")

        if files:
            for path in sorted(files.rglob("*")):
                add(path, str(path.relative_to(files)))
        for name, path in programs.items():
            add(path.resolve(), name)
    return packed.getvalue()


def wait(guest: Guest, timeout_s: float, console: Path) -> None:
    """Waits until the desktop is drawn.

    Raises:
        ProvisionFailed: It was not; with what the console says.
    """
    end = time.monotonic() + timeout_s
    while True:
        try:
            guest.call("/v1/health", timeout_s=5)
            break
        except OSError as error:
            if time.monotonic() > end:
                tail = console.read_bytes()[-CONSOLE_TAIL_BYTES:] if console.exists() else b""
                said = tail.decode(errors="replace")
                raise ProvisionFailed(f"no guest agent within {timeout_s} s ({error})\n{said}") from error
            time.sleep(POLL_S)
    guest.ask("/v1/ready", {"timeout_s": READY_TIMEOUT_S}, READY_TIMEOUT_S + 30)


def provision(settings: Mapping[str, str]) -> None:
    """Everything, in order.

    Raises:
        ProvisionFailed, OSError: something did not work.
    """
    scripts = [Path(name) for name in json.loads(settings["OSGYM_PROVISION"])]
    files = Path(settings["OSGYM_FILES"]) if settings["OSGYM_FILES"] else None
    if files and not files.is_dir():
        raise ProvisionFailed(f"files: {files} is not a folder")
    definition = tomllib.loads((IMAGES / "golden.toml").read_text(encoding="utf-8"))
    programs = {
        f"{BAKE_FOLDER}/scripts/{number:02}-{path.name}": path
        for number, path in enumerate([*scripts, FINISH])
    }
    data = archive(files, programs, definition["user"]["home"], definition["user"]["uid"])
    token = Path(settings["OSGYM_TOKEN_FILE"]).read_text(encoding="utf-8").strip()
    guest = Guest(int(settings["OSGYM_PORT"]), token)
    wait(guest, float(settings["OSGYM_BOOT_TIMEOUT_S"]), Path(settings["OSGYM_CONSOLE"]))
    guest.upload(UPLOADED, data)
    # Folders that are there keep owner and mode.
    tar = ["tar", "--extract", "--numeric-owner", "--same-permissions", "--no-overwrite-dir"]
    guest.root("copying in", [*tar, "--keep-directory-symlink", "-C", "/", "-f", UPLOADED])
    told = [f"{name}={value}" for name, value in environment(definition).items()]
    for name, path in programs.items():
        guest.root(path.name, ["env", "-C", "/", *told, f"/{name}"])
    guest.root("clearing up", ["sh", "-c", END])
    guest.ask("/setup/launch", {"command": ["sudo", "-n", "systemctl", "poweroff"]})


def main() -> int:
    """Returns the exit code."""
    try:
        provision(os.environ)
    except (ProvisionFailed, OSError, KeyError, ValueError) as error:
        name = "" if isinstance(error, ProvisionFailed) else f"{type(error).__name__}: "
        print(f"provision: {name}{error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
