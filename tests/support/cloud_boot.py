"""A cloud around one machine with a real systemd: user data, a metadata service and a bucket on loopback.

What the cloud does is said by files below /srv of the machine: `deny` (the bucket answers 403), `stall` (of
the object it names the first part comes, and then nothing), `notice` (an interruption).
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from osgym_infra.fleet.boot import UNIT, BootPlace, package, package_sha256, user_data
from osgym_infra.fleet.boot_status import BootStatus, parse
from osgym_infra.fleet.bootstrap import bootstrap_files
from tests.support.systemd_host import SystemdHost

INSTANCE, ADDRESS = "i-0123456789abcdef0", "10.64.0.7"
STATUS_OBJECT = f"srv/bucket/osgym/test/status/{INSTANCE}.json"
__all__ = ["ADDRESS", "INSTANCE", "UNIT", "in_bucket", "point_to_loopback", "prepare", "record"]

SERVER = """
import http.server, json, pathlib, threading, time
srv = pathlib.Path("/srv")
META = {
    "/latest/meta-data/iam/security-credentials/": b"host-role",
    "/latest/meta-data/iam/security-credentials/host-role":
        json.dumps({"AccessKeyId": "AKIA", "SecretAccessKey": "key", "Token": "session"}).encode(),
    "/latest/meta-data/placement/region": b"eu-central-1",
    "/latest/meta-data/instance-id": b"INSTANCE",
    "/latest/meta-data/local-ipv4": b"ADDRESS",
}
class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self, status, data=b""):
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
class Metadata(Handler):
    def do_PUT(self):
        self.answer(200, b"imds-token")
    def do_GET(self):
        notice = srv / "notice"
        if self.path.endswith("/spot/instance-action") and notice.exists():
            self.answer(200, notice.read_bytes())
        elif self.path in META and self.headers["X-aws-ec2-metadata-token"] == "imds-token":
            self.answer(200, META[self.path])
        else:
            self.answer(404)
class Bucket(Handler):
    def refused(self):
        signed = "Credential=AKIA/" in self.headers.get("Authorization", "")
        if signed and not (srv / "deny").exists():
            return False
        self.answer(403, b"<Error><Code>AccessDenied</Code></Error>")
        return True
    def do_PUT(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.refused():
            return
        path = srv / "bucket" / self.path.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".new").write_bytes(body)
        path.with_suffix(".new").rename(path)
        self.answer(200)
    def do_GET(self):
        if self.refused():
            return
        name = self.path.lstrip("/")
        path = next((p for p in (srv / name, srv / "bucket" / name) if p.is_file()), None)
        if path is None:
            return self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        self.send_response(200)
        self.send_header("Content-Length", str(path.stat().st_size))
        self.end_headers()
        stall = srv / "stall"
        with path.open("rb") as file:
            while chunk := file.read(1 << 20):
                self.wfile.write(chunk)
                while stall.exists() and stall.read_text() == name:
                    time.sleep(0.1)
threading.Thread(target=http.server.ThreadingHTTPServer(("127.0.0.1", 9000), Bucket).serve_forever).start()
http.server.ThreadingHTTPServer(("169.254.169.254", 80), Metadata).serve_forever()
""".replace("INSTANCE", INSTANCE).replace("ADDRESS", ADDRESS)


def prepare(root: Path, archives: Mapping[str, Path], settings: Mapping[str, str]) -> None:
    """Puts the machine's user data (/srv/user-data), the bucket and the servers into its root."""
    for name, path in archives.items():
        shutil.copy(path, root / "srv" / name)
    text = package(bootstrap_files())
    (root / "srv/bucket").mkdir()
    (root / "srv/bucket/bootstrap.json").write_text(text)
    place = BootPlace("s3://bucket/bootstrap.json", package_sha256(text), "s3://bucket/osgym/test/status/")
    (root / "srv/user-data").write_text(user_data(bootstrap_files(), {**settings, **place.settings()}))
    (root / "srv/console").touch()
    (root / "srv/cloud.py").write_text(SERVER)
    units = root / "etc/systemd/system"
    (units / "cloud.service").write_text(
        "[Service]\nExecStart=/usr/bin/python3 /srv/cloud.py\nTimeoutStopSec=1\n"
        "[Install]\nWantedBy=multi-user.target\n"
    )
    (units / "multi-user.target.wants").mkdir(exist_ok=True)
    (units / "multi-user.target.wants/cloud.service").symlink_to("/etc/systemd/system/cloud.service")
    _drop_in(root, "OSGYM_CONSOLE=/srv/console")


def point_to_loopback(root: Path) -> None:
    """From the next start of the unit on the bucket is the one on loopback."""
    _drop_in(root, "OSGYM_CONSOLE=/srv/console OSGYM_S3_ENDPOINT=http://127.0.0.1:9000")


def _drop_in(root: Path, environment: str) -> None:
    folder = root / "etc/systemd/system" / f"{UNIT}.d"
    folder.mkdir(exist_ok=True)
    (folder / "test.conf").write_text(f"[Service]\nEnvironment={environment}\nRestartSec=1\n")


def record(host: SystemdHost) -> BootStatus | None:
    """The one that the machine keeps until it is switched off."""
    done = host.run("cat /run/osgym-boot.json", 20)
    return parse(done.stdout) if done.returncode == 0 else None


def in_bucket(root: Path) -> BootStatus | None:
    """The one in the bucket."""
    path = root / STATUS_OBJECT
    return parse(path.read_text()) if path.is_file() else None
