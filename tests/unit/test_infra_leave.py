"""A host of an Auto Scaling group leaves in order: real processes against servers that answer as AWS does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

LEAVE = Path(__file__).resolve().parents[2] / "infra" / "bootstrap" / "leave.py"
KEYS = {"AccessKeyId": "AKIDEXAMPLE", "SecretAccessKey": "secret-key", "Token": "session-token"}


class Cloud:
    """Metadata service and API of one instance.

    Attributes:
        state: where the group wants the instance; None: it is in no group.
        calls: of the API, with the time.
        refuse: errors that the API answers first, by their code; all are 400.
    """

    def __init__(self) -> None:
        self.state: str | None = "InService"
        self.calls: list[tuple[float, dict[str, str]]] = []
        self.refuse: list[str] = []
        self.tokens = 0
        cloud = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: Any) -> None:
                """Quiet."""

            def _answer(self, status: int, text: str = "") -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())

            def do_PUT(self) -> None:
                cloud.tokens += 1
                self._answer(200, f"token-{cloud.tokens}")

            def do_GET(self) -> None:
                # The first token runs out at once, as one does after hours.
                if self.headers["X-aws-ec2-metadata-token"] == "token-1":
                    self._answer(401)
                    return
                found = {
                    "autoscaling/target-lifecycle-state": cloud.state,
                    "instance-id": "i-0123456789abcdef0",
                    "iam/security-credentials/": "osgym-host",
                    "iam/security-credentials/osgym-host": json.dumps(KEYS),
                    "placement/region": "eu-central-1",
                }[self.path.removeprefix("/latest/meta-data/")]
                self._answer(*((404,) if found is None else (200, found)))

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                assert cloud.is_signed(dict(self.headers.items()), body), "403 in AWS"
                cloud.calls.append((time.monotonic(), dict(parse_qsl(body.decode()))))
                if cloud.refuse:
                    code = cloud.refuse.pop(0)
                    self._answer(400, f"<ErrorResponse><Error><Code>{code}</Code></Error></ErrorResponse>")
                else:
                    self._answer(200)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def is_signed(self, headers: dict[str, str], body: bytes) -> bool:
        """Whether AWS's own code signs the request so."""
        given = {name.lower(): value for name, value in headers.items()}
        signed = given["authorization"].split("SignedHeaders=")[1].split(",")[0].split(";")
        request = AWSRequest(
            "POST", f"{self.url}/", data=body, headers={n: given[n] for n in signed if n != "host"}
        )
        request.context["timestamp"] = given["x-amz-date"]
        keys = Credentials(KEYS["AccessKeyId"], KEYS["SecretAccessKey"], KEYS["Token"])
        auth = SigV4Auth(keys, "autoscaling", "eu-central-1")
        whole = auth.canonical_request(request)
        return given["authorization"].endswith(auth.signature(auth.string_to_sign(request, whole), request))

    def actions(self) -> list[str]:
        return [call["Action"] for _, call in self.calls]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    made = Cloud()
    yield made
    made.close()


def leaving(cloud: Cloud, command: str, timeout_s: float = 30.0) -> subprocess.Popen[str]:
    """The process as its unit starts it."""
    environment = {
        **os.environ, "OSGYM_AWS_METADATA": cloud.url, "OSGYM_AUTOSCALING_ENDPOINT": f"{cloud.url}/",
        "OSGYM_LEAVE_LOOK_S": "0.05", "OSGYM_LEAVE_HEARTBEAT_S": "0.2",
    }  # fmt: skip
    argv = [sys.executable, str(LEAVE), "eu-central-1", "osgym-prod-a", "osgym-drain", str(timeout_s)]
    return subprocess.Popen(
        [*argv, "sh", "-c", command],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.parametrize("first", ["InService", None])
def test_it_goes_when_its_episodes_are_over(cloud: Cloud, tmp_path: Path, first: str | None) -> None:
    """Nothing before the group wants it; the group is kept waiting, and told at once, once."""
    cloud.state = first
    process = leaving(cloud, f"touch {tmp_path}/drains; while [ ! -e {tmp_path}/empty ]; do sleep 0.05; done")
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.5)
    assert cloud.calls == []
    assert not (tmp_path / "drains").exists()
    cloud.state = "Terminated"
    end = time.monotonic() + 20
    while len(cloud.calls) < 3:
        assert time.monotonic() < end
        time.sleep(0.02)
    assert set(cloud.actions()) == {"RecordLifecycleActionHeartbeat"}
    (tmp_path / "empty").touch()
    said, _ = process.communicate(timeout=20)
    assert process.returncode == 0, said
    assert cloud.calls[-1][1] == {
        "Action": "CompleteLifecycleAction", "Version": "2011-01-01", "AutoScalingGroupName": "osgym-prod-a",
        "LifecycleHookName": "osgym-drain", "InstanceId": "i-0123456789abcdef0",
        "LifecycleActionResult": "CONTINUE",
    }  # fmt: skip
    assert cloud.actions().count("CompleteLifecycleAction") == 1
    assert "the group was notified that it can remove the host" in said


def test_a_host_that_nobody_waits_for_says_so(cloud: Cloud) -> None:
    """Ended by hand: there is no action to complete; it drains all the same, and does not ask for ever."""
    cloud.state, cloud.refuse = "Terminated", ["ValidationError"] * 20
    said, _ = leaving(cloud, "exit 0").communicate(timeout=20)
    assert "the group did not extend the deadline" in said
    assert "the group could not be notified" in said
    assert cloud.actions().count("CompleteLifecycleAction") == 1


def test_a_group_that_has_no_time_is_told_again(cloud: Cloud) -> None:
    """Throttling is an error 400, too; the host would be paid for as long as the hook lasts."""
    cloud.state, cloud.refuse = "Terminated", ["Throttling"] * 2
    said, _ = leaving(cloud, "exit 0").communicate(timeout=20)
    assert "the group was notified that it can remove the host" in said
    assert cloud.actions() == ["RecordLifecycleActionHeartbeat"] + ["CompleteLifecycleAction"] * 2


def test_a_drain_that_hangs_does_not_keep_it(cloud: Cloud) -> None:
    """Its time is over, and it goes."""
    cloud.state = "Terminated"
    said, _ = leaving(cloud, "exec sleep 600", timeout_s=-59.5).communicate(timeout=20)
    assert "drained (exit code -9)" in said
    assert cloud.actions()[-1] == "CompleteLifecycleAction"


def test_the_unit_runs_it_where_there_is_a_group(tmp_path: Path) -> None:
    """With what the program set; on other hosts there is no such unit."""
    shell = (LEAVE.parent / "units.sh").read_text()
    body = shell[shell.index("write_leave() {") :].split("\n}\n")[0] + "\n}\n"
    script = 'place() { cat > "$1"; }\nquietly() { echo "$*"; }\n' + body + "write_leave"
    known = {"PATH": os.environ["PATH"], "units": str(tmp_path), "here": "/usr/local/lib/osgym-bootstrap"}
    group = {"OSGYM_LIFECYCLE": "eu-central-1 osgym-prod-a osgym-drain", "OSGYM_DRAIN_TIMEOUT_S": "600"}
    unit = tmp_path / "osgym-leave.service"
    subprocess.run(["bash", "-eu", "-c", script], env=known, check=True)
    assert not unit.exists()
    done = subprocess.run(
        ["bash", "-eu", "-c", script], env={**known, **group}, check=True, capture_output=True, text=True
    )
    here = known["here"]
    assert (
        f"ExecStart=/usr/bin/python3 {here}/leave.py eu-central-1 osgym-prod-a osgym-drain 600 "
        f"{here}/bootstrap.sh drain --deadline-s 600 --wait\n" in unit.read_text()
    )
    assert "systemctl enable osgym-leave.service" in done.stdout
