"""What a cloud's host does at its start: it tries again, and says where it stands."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from tests.support.local_http import serving_http

from osgym_infra.fleet import boot_status
from osgym_infra.fleet.boot import BootPlace, env_file, package, package_sha256, unit
from osgym_infra.fleet.boot_status import BootState, NoBootStatus
from osgym_infra.fleet.bootstrap import bootstrap_files
from osgym_infra.hosts.spec import STEP_TIMEOUTS_S

FOLDER = Path(__file__).resolve().parents[2] / "infra" / "bootstrap"
KEYS = {"AccessKeyId": "AKIA", "SecretAccessKey": "very-secret-key", "Token": "session-token"}
RECORD: dict[str, Any] = {
    "version": 1, "host": "h", "addresses": [], "state": "failed", "step": "image", "attempt": 7,
    "error": "", "next_s": 300, "at": "2026-11-22T10:00:00Z",
}  # fmt: skip
BOOTSTRAP = """#!/bin/bash
case $1 in
  steps) printf 'packages 30\\nimage 30\\nhealth 30\\n' ;;
  up) . "$(dirname "$0")/$2.sh" ;;
esac
"""


@dataclass
class Cloud:
    """A metadata service and a bucket on loopback; `refuse` says what the bucket answers instead."""

    url: str = ""
    objects: dict[str, bytes] = field(default_factory=dict)
    refuse: Callable[[str, str], int] = lambda method, path: 0
    cut: int | None = None
    puts: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)

    def metadata(self, path: str) -> bytes | None:
        """Of AWS and of Google Cloud; there is no public address."""
        answers = {
            "/latest/api/token": b"imds-token",
            "/latest/meta-data/iam/security-credentials/": b"host-role",
            "/latest/meta-data/iam/security-credentials/host-role": json.dumps(KEYS).encode(),
            "/latest/meta-data/placement/region": b"eu-central-1",
            "/latest/meta-data/instance-id": b"i-0123456789abcdef0",
            "/latest/meta-data/local-ipv4": b"10.64.0.7",
            "/computeMetadata/v1/instance/name": b"osgym-prod-n2-0",
            "/computeMetadata/v1/instance/network-interfaces/0/ip": b"10.64.0.8",
            "/computeMetadata/v1/instance/service-accounts/default/token": b'{"access_token": "google"}',
        }
        return answers.get(path)


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    """It runs for the test."""
    state = Cloud()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self, status: int, data: bytes = b"") -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data if state.cut is None else data[: state.cut])

        def _any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path = self.path.partition("?")[0]
            if path.startswith(("/latest/", "/computeMetadata/")):
                found = state.metadata(path)
                self._answer(404 if found is None else 200, found or b"")
            elif status := state.refuse(self.command, path):
                self._answer(status, b"<Error><Code>AccessDenied</Code><Message>secret?</Message></Error>")
            elif self.command == "GET":
                self._answer(200 if path in state.objects else 404, state.objects.get(path, b""))
            else:
                headers = {name.lower(): value for name, value in self.headers.items()}
                state.puts.append((self.path, headers, body))
                self._answer(200, b"{}")

        do_GET = do_PUT = do_POST = _any

        def log_message(self, *_: object) -> None:
            """Quiet."""

    with serving_http(Handler) as state.url:
        yield state


@pytest.fixture
def boot(cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module as a host has it, with the cloud on loopback and all its files in a folder."""
    names = ("AWS_METADATA", "GCP_METADATA", "S3_ENDPOINT", "GCS_ENDPOINT")
    for name in names:
        monkeypatch.setenv(f"OSGYM_{name}", cloud.url)
    monkeypatch.setenv("OSGYM_BOOTSTRAP", str(tmp_path / "bootstrap"))
    monkeypatch.setenv("OSGYM_CONSOLE", str(tmp_path / "console"))
    (tmp_path / "console").touch()
    monkeypatch.delitem(sys.modules, "fetch", raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    spec = importlib.util.spec_from_file_location("osgym_boot", FOLDER / "boot.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "RECORD", tmp_path / "record.json")
    monkeypatch.setattr(module, "REPORT_EVERY_S", 0.01)
    monkeypatch.setattr(module, "REPORT_AGAIN_S", 0.02)
    monkeypatch.setattr(module, "__file__", str(tmp_path / "boot.py"))
    yield module
    sys.modules.pop("fetch", None)


def put_package(cloud: Cloud, **rooms: str) -> dict[str, str]:
    """A small bootstrap in the bucket, whose steps are these scripts; the settings that name it."""
    files = {"bootstrap.sh": BOOTSTRAP, **{f"{name}.sh": text for name, text in rooms.items()}}
    text = package({name: content.encode() for name, content in files.items()})
    cloud.objects["/osgym/prod/bootstrap.json"] = text.encode()
    place = BootPlace(
        "s3://bucket/osgym/prod/bootstrap.json", package_sha256(text), "s3://bucket/osgym/prod/status/"
    )
    return place.settings()


def test_it_waits_longer_each_time_and_then_slowly(boot: Any) -> None:
    """Soon at first, half a minute at most for a quarter of an hour, then every five minutes; what cannot
    mend itself slowly at once."""
    waits = [boot.delay_s(failures, 0.0, False) for failures in range(1, 8)]
    assert waits == [2, 4, 8, 16, 30, 30, 30]
    assert boot.delay_s(500, 899.0, False) == 30
    assert boot.delay_s(500, 901.0, False) == boot.delay_s(1, 0.0, True) == 300


def test_it_reads_the_settings_that_are_written_for_it(boot: Any) -> None:
    """Whatever is in them."""
    values = {"A": "", "B": "a b", "C": "it's $HOME `x`", "D": "a=b # c", "E": "*.x.org, b.org"}
    assert boot.read_settings(env_file(values)) == values


def test_the_steps_and_their_times_are_the_same_for_all_who_run_them() -> None:
    """A host of a cloud runs them by `boot.py`, one of one's own over ssh."""
    done = subprocess.run(
        [FOLDER / "bootstrap.sh", "steps"], capture_output=True, text=True, timeout=30, check=True
    )
    found = [line.split() for line in done.stdout.splitlines()]
    assert [(name, float(most_s)) for name, most_s in found] == list(STEP_TIMEOUTS_S.items())


def test_the_package_is_the_bootstrap(boot: Any, cloud: Cloud, tmp_path: Path) -> None:
    """All its files, executable, and none of what was there before; it is fetched once."""
    text = package(bootstrap_files())
    cloud.objects["/b.json"] = text.encode()
    settings = BootPlace("s3://bucket/b.json", package_sha256(text), "").settings()
    folder = tmp_path / "bootstrap"
    folder.mkdir()
    (folder / "old.sh").touch()
    boot.fetch_package(settings)
    found = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".sha256"}
    assert found == bootstrap_files()
    assert os.access(folder / "bootstrap.sh", os.X_OK)
    del cloud.objects["/b.json"]
    boot.fetch_package(settings)
    assert boot.steps() == list(STEP_TIMEOUTS_S.items())


def test_a_package_that_is_another_one_is_not_unpacked(boot: Any, cloud: Cloud, tmp_path: Path) -> None:
    """That will not mend itself; a role that is not known yet, or an answer that broke off, may."""
    settings = put_package(cloud)
    wrong = {**settings, "OSGYM_BOOTSTRAP_SHA256": "0" * 64}
    with pytest.raises(boot.StepFailed, match="has SHA-256") as failed:
        boot.fetch_package(wrong)
    assert failed.value.for_good
    for refused in (403, 404, 500, 503):
        cloud.refuse = lambda method, path, refused=refused: refused
        with pytest.raises(boot.StepFailed, match=rf"answered {refused} .*\(AccessDenied\)") as failed:
            boot.fetch_package(settings)
        assert not failed.value.for_good
        assert "secret?" not in str(failed.value)
    cloud.refuse = lambda method, path: 0
    cloud.cut = 40
    with pytest.raises(boot.StepFailed) as failed:
        boot.fetch_package(settings)
    assert not failed.value.for_good
    assert not (tmp_path / "bootstrap").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["console"]
    cloud.cut = None
    boot.fetch_package(settings)


def test_a_file_that_breaks_off_is_no_wrong_file(cloud: Cloud, boot: Any, tmp_path: Path) -> None:
    """Half a download has another SHA-256, too; the next one may be whole."""
    data = os.urandom(100_000)
    cloud.objects["/image.tar"] = data
    cloud.cut = 50_000
    with pytest.raises(boot.fetch.FetchFailed, match="broke off after 50000 of 100000 bytes") as failed:
        boot.fetch.fetch_file(
            "s3://bucket/image.tar", tmp_path / "image.tar", hashlib.sha256(data).hexdigest()
        )
    assert not failed.value.for_good
    assert not (tmp_path / "image.tar").exists()


@pytest.mark.parametrize("name", ["../x.sh", "/etc/x.sh", "x", ".sha256", "a/b.sh"])
def test_a_package_writes_nowhere_else(boot: Any, tmp_path: Path, name: str) -> None:
    """A name that is none of the bootstrap's is refused."""
    with pytest.raises(ValueError, match="is not a setting of the bootstrap"):
        boot.unpack(json.dumps({name: "x"}), tmp_path / "bootstrap")
    assert not (tmp_path / "bootstrap").exists()


def test_a_step_that_fails_says_why_and_whether_for_good(boot: Any, cloud: Cloud) -> None:
    """By its exit code; a step that hangs is ended with all that it started."""
    settings = put_package(
        cloud,
        packages="echo 'osgym: packages failed: no route'; echo more; exit 1",
        image="echo 'osgym: image failed: has SHA-256 x'; exit 3",
        health="sleep 1000 & echo $! > $(dirname $0)/pid; sleep 1000",
    )
    boot.fetch_package(settings)
    said: list[str] = []
    with pytest.raises(boot.StepFailed, match=r"^no route$") as failed:
        boot.run_step("packages", 30, said.append)
    assert (failed.value.step, failed.value.for_good) == ("packages", False)
    assert said == ["osgym: packages failed: no route", "more"]
    with pytest.raises(boot.StepFailed, match="has SHA-256 x") as failed:
        boot.run_step("image", 30, said.append)
    assert failed.value.for_good
    with pytest.raises(boot.StepFailed, match=r"not finished within 0\.5 s"):
        boot.run_step("health", 0.5, said.append)
    pid = int((boot.TARGET / "pid").read_text())
    until(lambda: not Path(f"/proc/{pid}/cmdline").exists() or not Path(f"/proc/{pid}/cmdline").read_bytes())


def until(what: Callable[[], object]) -> None:
    """Waits."""
    end = time.monotonic() + 20
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_records_are_on_the_console_in_a_file_and_in_the_bucket(
    boot: Any, cloud: Cloud, tmp_path: Path
) -> None:
    """One line each, which the reader understands; the bucket's is signed with the host's own role."""
    reporter = boot.Reporter("s3://bucket/osgym/prod/status/", 2)
    reporter.record["attempt"] += 1
    reporter.report("retrying", "image", 'bucket/image.tar answered 403 "x"\nForbidden', 30)
    reporter.flush(10)
    path, headers, body = cloud.puts[-1]
    assert path == "/osgym/prod/status/i-0123456789abcdef0.json"
    found = boot_status.parse(body.decode())
    assert (found.host, found.addresses) == ("i-0123456789abcdef0", ("10.64.0.7",))
    assert (found.state, found.step, found.attempt, found.next_s) == (BootState.RETRYING, "image", 3, 30)
    assert found.error == 'bucket/image.tar answered 403 "x" Forbidden'
    assert abs((datetime.now(UTC) - found.at).total_seconds()) < 60
    assert found.line() == f"image retrying (attempt 3, again in 30 s): {found.error}"
    console = (tmp_path / "console").read_text()
    assert len(console.splitlines()) == 1
    on_console = boot_status.last_on_console(f"[ 3.1] kernel\n{console}osgym-boot: {{cut of")
    assert on_console is not None
    assert (on_console.step, on_console.error) == (found.step, found.error)
    assert boot_status.parse((tmp_path / "record.json").read_text()).attempt == 3
    assert boot.former_attempts() == 3
    signed = headers["authorization"].split("SignedHeaders=")[1].split(",")[0].split(";")
    request = AWSRequest("PUT", f"{cloud.url}{path}", headers={n: headers[n] for n in signed}, data=body)
    request.context["timestamp"] = headers["x-amz-date"]
    auth = SigV4Auth(Credentials(*KEYS.values()), "s3", "eu-central-1")
    wanted = auth.signature(auth.string_to_sign(request, auth.canonical_request(request)), request)
    assert headers["authorization"].endswith(f"Signature={wanted}")


def test_google_cloud_gets_the_record_by_its_own_way(boot: Any, cloud: Cloud) -> None:
    """An upload of the JSON API with the service account's token."""
    reporter = boot.Reporter("gs://bucket/osgym/prod/status/")
    reporter.report("serving", "health")
    reporter.flush(10)
    path, headers, body = cloud.puts[-1]
    assert path == (
        "/upload/storage/v1/b/bucket/o?uploadType=media&name=osgym%2Fprod%2Fstatus%2Fosgym-prod-n2-0.json"
    )
    assert headers["authorization"] == "Bearer google"
    found = boot_status.parse(body.decode())
    assert (found.addresses, found.line()) == (("10.64.0.8",), "serving")


def test_the_newest_record_comes_through_once_the_bucket_takes_it(boot: Any, cloud: Cloud) -> None:
    """Refused ones hold nothing up; what was overtaken is not sent later."""
    cloud.refuse = lambda method, path: 403
    reporter = boot.Reporter("s3://bucket/status")
    began = time.monotonic()
    for step in ("packages", "agent", "image"):
        reporter.report("running", step)
    assert time.monotonic() - began < 1
    reporter.flush(0.2)
    assert cloud.puts == []
    reporter.report("serving", "health")
    cloud.refuse = lambda method, path: 0
    reporter.flush(10)
    # One may have been on its way.
    states = [boot_status.parse(body.decode()).state for _, _, body in cloud.puts]
    assert states[-1] is BootState.SERVING
    assert len(states) <= 2


def test_it_goes_on_until_the_host_serves(
    boot: Any, cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bucket that refuses at first, a step that fails at first, one that fails for good until mended."""
    settings = put_package(
        cloud,
        packages="echo 'osgym: packages ok'",
        image=f"[ -e {tmp_path}/mended ] || {{ echo 'osgym: image failed: wrong'; exit 3; }}",
        health=f"[ -e {tmp_path}/twice ] || {{ touch {tmp_path}/twice; exit 1; }}",
    )
    refused: list[str] = []

    def refuse(method: str, path: str) -> int:
        refused.append(path)
        return 403 if len(refused) < 4 else 0

    cloud.refuse = refuse
    (tmp_path / "settings").write_text(env_file(settings))
    monkeypatch.setattr(boot, "SETTINGS", tmp_path / "settings")
    slept: list[float] = []

    def sleep(wait_s: float) -> None:
        slept.append(wait_s)
        if wait_s > 200:
            (tmp_path / "mended").touch()

    class Time:
        monotonic, strftime, gmtime = time.monotonic, time.strftime, time.gmtime

        @staticmethod
        def sleep(wait_s: float) -> None:
            if threading.current_thread() is threading.main_thread():
                sleep(wait_s)
            else:
                time.sleep(wait_s)

    monkeypatch.setattr(boot, "time", Time)
    assert boot.main() == 0
    lines = [line for line in (tmp_path / "console").read_text().splitlines() if "osgym-boot" in line]
    records = [boot_status.parse(line.partition(": ")[2]) for line in lines]
    failed = [(one.state, one.step) for one in records if one.state is not BootState.RUNNING]
    assert failed[-3:] == [
        (BootState.FAILED, "image"), (BootState.RETRYING, "health"), (BootState.SERVING, "health")
    ]  # fmt: skip
    assert failed[0] == (BootState.RETRYING, "bootstrap")
    assert any(wait_s >= 240 for wait_s in slept)
    assert [one.attempt for one in records] == sorted(one.attempt for one in records)
    assert boot_status.parse(cloud.puts[-1][2].decode()).state is BootState.SERVING


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "null", "1", '"x"', '{"version": 1}', '{"version": 2}', "[" * 100_000,
        json.dumps({**RECORD, "addresses": 3}),
        json.dumps({**RECORD, "state": "odd"}),
        json.dumps({**RECORD, "attempt": float("inf")}),
        json.dumps({**RECORD, "at": "yesterday"}),
        json.dumps({name: value for name, value in RECORD.items() if name != "step"}),
    ],
)  # fmt: skip
def test_what_is_no_record_is_refused(text: str) -> None:
    """With one exception; a host is not trusted."""
    with pytest.raises(NoBootStatus):
        boot_status.parse(text)
    assert boot_status.last_on_console(text) is None


def test_a_record_is_shown_on_one_line_whatever_a_host_writes() -> None:
    """No control characters, no escape sequences, not long."""
    data = {**RECORD, "host": "h\n\x1b[2J", "addresses": ["a"] * 100, "error": "e\r\n" * 900}
    assert boot_status.parse(json.dumps(RECORD)).step == "image"
    with pytest.raises(NoBootStatus):
        boot_status.parse(json.dumps({**data, "step": "s" * 90_000}))
    found = boot_status.parse(json.dumps(data))
    assert found.line().isprintable()
    assert len(found.line()) < 700
    assert found.host == "h [2J"
    assert len(found.addresses) == 8


def test_the_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    """It never gives up, and runs again after each start of the host."""
    path = tmp_path / "osgym-boot.service"
    path.write_text(unit())
    for line in ("Restart=on-failure", "StartLimitIntervalSec=0", "WantedBy=multi-user.target"):
        assert f"\n{line}\n" in unit()
    try:
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", str(path)],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    except FileNotFoundError:
        pytest.skip("missing: systemd-analyze")
    assert "osgym-boot.service" not in done.stderr, done.stderr
