"""What the bootstrap fetches and how: from buckets and secret stores, by the host's own role."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from tests.support.local_http import serving_http
from tests.support.recording_proxy import recording_proxy

FOLDER = Path(__file__).resolve().parents[2] / "infra" / "bootstrap"
MAY_PASS, WILL_NOT_PASS = 1, 3
DATA = b"golden image" * 1000
SHA256 = hashlib.sha256(DATA).hexdigest()
TOKEN = "0123456789abcdef-token"
KEYS = {"AccessKeyId": "AKIA", "SecretAccessKey": "very-secret-key", "Token": "session-token"}


@dataclass
class Clouds:
    """A metadata service, a bucket and a secret store on loopback, as AWS and Google Cloud have them."""

    url: str = ""
    secret: str = TOKEN
    redirect: bool = False
    seen: list[tuple[str, str, Mapping[str, str], bytes]] = field(default_factory=list)

    def answer(self, method: str, path: str, headers: Mapping[str, str]) -> tuple[int, bytes]:
        """What they say."""
        aws = headers.get("x-aws-ec2-metadata-token") == "imds-token"
        google = headers.get("authorization") == "Bearer google-token"
        match method, path.partition("?")[0]:
            case "PUT", "/latest/api/token" if "x-aws-ec2-metadata-token-ttl-seconds" in headers:
                return 200, b"imds-token"
            case "GET", "/latest/meta-data/iam/security-credentials/" if aws:
                return 200, b"host-role\n"
            case "GET", "/latest/meta-data/iam/security-credentials/host-role" if aws:
                return 200, json.dumps(KEYS).encode()
            case "GET", "/latest/meta-data/placement/region" if aws:
                return 200, b"eu-central-1"
            case "GET", "/some%20folder/image.tar" if "authorization" in headers:
                return 200, DATA
            case "POST", "/" if headers.get("x-amz-target") == "secretsmanager.GetSecretValue":
                return 200, json.dumps({"SecretString": self.secret}).encode()
            case "GET", "/computeMetadata/v1/instance/service-accounts/default/token" if (
                headers.get("metadata-flavor") == "Google"
            ):
                return 200, b'{"access_token": "google-token"}'
            case "GET", "/storage/v1/b/bucket/o/folder%2Fimage.tar" if google and path.endswith("alt=media"):
                return 200, DATA
            case "GET", "/v1/projects/p/secrets/s/versions/1:access" if google:
                data = base64.b64encode(json.dumps({"token": self.secret}).encode()).decode()
                return 200, json.dumps({"payload": {"data": data}}).encode()
        return 403, b"no"

    def environment(self) -> dict[str, str]:
        """Where `fetch.py` finds all that."""
        names = ("AWS_METADATA", "GCP_METADATA", "S3_ENDPOINT", "GCS_ENDPOINT", "GCP_SECRETS_ENDPOINT")
        return {f"OSGYM_{n}": self.url for n in names} | {"OSGYM_SECRETS_ENDPOINT": f"{self.url}/"}


@pytest.fixture
def clouds() -> Iterator[Clouds]:
    """They run for the test."""
    state = Clouds()

    class Handler(BaseHTTPRequestHandler):
        def _any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {k.lower(): v for k, v in self.headers.items()}
            state.seen.append((self.command, self.path, headers, body))
            if state.redirect and "authorization" in headers:
                self.send_response(302)
                self.send_header("Location", f"{state.url}/elsewhere")
                self.end_headers()
                return
            status, answer = state.answer(self.command, self.path, headers)
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_GET = do_PUT = do_POST = _any

        def log_message(self, *_: object) -> None:
            """Quiet."""

    with serving_http(Handler) as state.url:
        yield state


Fetch = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def fetch(clouds: Clouds) -> Fetch:
    """Runs `fetch.py`."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(FOLDER / "fetch.py"), *arguments],
            env={**os.environ, **clouds.environment()},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


@pytest.mark.parametrize("uri", ["s3://bucket/some folder/image.tar", "gs://bucket/folder/image.tar", "file"])
def test_files_come_by_the_hosts_own_role(fetch: Fetch, tmp_path: Path, uri: str) -> None:
    """From S3, from Cloud Storage, and from the disk."""
    if uri == "file":
        (tmp_path / "source").write_bytes(DATA)
        uri = (tmp_path / "source").as_uri()
    done = fetch("file", uri, str(tmp_path / "image.tar"), SHA256)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "image.tar").read_bytes() == DATA


def test_metadata_and_loopback_are_asked_past_the_proxy(
    fetch: Fetch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a metadata service answers are credentials; buckets elsewhere follow the environment."""
    with recording_proxy(tmp_path / "proxy") as proxy:
        for name, value in proxy.environment().items():
            monkeypatch.setenv(name, value)
        done = fetch("file", "s3://bucket/some folder/image.tar", str(tmp_path / "image.tar"), SHA256)
        assert done.returncode == 0, done.stderr
        assert proxy.heads == []
        assert (
            fetch("file", "https://elsewhere.example/x", str(tmp_path / "x"), SHA256).returncode == MAY_PASS
        )
        assert proxy.heads[0].startswith("CONNECT elsewhere.example:443 HTTP/1.")


def test_what_is_not_what_was_promised_is_not_kept(fetch: Fetch, tmp_path: Path) -> None:
    """Another SHA-256: an error, the old file as it was, nothing else left."""
    (tmp_path / "image.tar").write_bytes(b"old")
    done = fetch("file", "gs://bucket/folder/image.tar", str(tmp_path / "image.tar"), "0" * 64)
    assert done.returncode == WILL_NOT_PASS
    assert SHA256 in done.stderr
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {"image.tar": b"old"}


def test_requests_are_signed_as_aws_signs_them(clouds: Clouds, fetch: Fetch, tmp_path: Path) -> None:
    """The signature is the one that AWS' own library computes for the same request."""
    assert fetch("secret", "aws:arn:aws:secretsmanager:eu:1:secret:x", str(tmp_path / "s")).returncode == 0
    method, path, headers, body = clouds.seen[-1]
    signed = headers["authorization"].split("SignedHeaders=")[1].split(",")[0].split(";")
    request = AWSRequest(method, f"{clouds.url}{path}", headers={n: headers[n] for n in signed}, data=body)
    request.context["timestamp"] = headers["x-amz-date"]
    credentials = Credentials(KEYS["AccessKeyId"], KEYS["SecretAccessKey"], KEYS["Token"])
    auth = SigV4Auth(credentials, "secretsmanager", "eu-central-1")
    wanted = auth.signature(auth.string_to_sign(request, auth.canonical_request(request)), request)
    assert headers["authorization"].endswith(f"Signature={wanted}")


@pytest.mark.parametrize("source", ["aws:arn:x", "gcp:projects/p/secrets/s/versions/1", "file"])
def test_a_secret_is_roots_and_is_never_shown(fetch: Fetch, tmp_path: Path, source: str) -> None:
    """Mode 0600, an environment file; neither output holds the token."""
    if source == "file":
        (tmp_path / "token").write_text(TOKEN + "\n")
        source = f"file:{tmp_path / 'token'}"
    done = fetch("secret", source, str(tmp_path / "secret.env"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "secret.env").read_text() == f"OSGYM_TOKEN={TOKEN}\n"
    assert (tmp_path / "secret.env").stat().st_mode & 0o777 == 0o600
    assert TOKEN not in done.stdout + done.stderr


def test_a_certificate_in_the_secret_is_laid_beside_it(clouds: Clouds, fetch: Fetch, tmp_path: Path) -> None:
    """Three files that nobody else can read; the same secret again changes nothing, also not their mode."""
    pems = {"ca": "-----BEGIN CERTIFICATE-----\nA", "certificate": "-----BEGIN CERTIFICATE-----\nB",
            "key": "-----BEGIN PRIVATE KEY-----\nC"}  # fmt: skip
    clouds.secret = json.dumps({"token": TOKEN, **pems})
    done = fetch("secret", "aws:arn:x", str(tmp_path / "secret.env"))
    assert done.returncode == 0, done.stderr
    assert "PRIVATE" not in done.stdout + done.stderr
    files = {path.name: path for path in (tmp_path / "tls").iterdir()}
    assert {name: path.read_text() for name, path in files.items()} == {
        "ca.pem": pems["ca"],
        "cert.pem": pems["certificate"],
        "key.pem": pems["key"],
    }
    assert files["key.pem"].stat().st_mode & 0o777 == 0o600
    files["key.pem"].chmod(0o640)
    assert fetch("secret", "aws:arn:x", str(tmp_path / "secret.env")).returncode == 0
    assert files["key.pem"].stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "secret.env").read_text() == f"OSGYM_TOKEN={TOKEN}\n"


@pytest.mark.parametrize(
    "secret", ["short", "with space in the middle", "quote'quote'quote'quote", "{}", "x" * 2000]
)
def test_a_secret_that_is_no_token_is_refused_unseen(
    clouds: Clouds, fetch: Fetch, tmp_path: Path, secret: str
) -> None:
    """It could not stand in an environment file, or is none."""
    clouds.secret = secret
    done = fetch("secret", "aws:arn:x", str(tmp_path / "secret.env"))
    assert done.returncode == WILL_NOT_PASS
    assert secret not in done.stderr or secret == "{}"
    assert list(tmp_path.iterdir()) == []


def test_credentials_follow_no_redirect(clouds: Clouds, fetch: Fetch, tmp_path: Path) -> None:
    """A bucket that sends elsewhere gets an error, and elsewhere gets nothing."""
    clouds.redirect = True
    done = fetch("file", "gs://bucket/folder/image.tar", str(tmp_path / "image.tar"), SHA256)
    assert done.returncode == WILL_NOT_PASS
    assert not any(path == "/elsewhere" for _, path, _, _ in clouds.seen)


def test_an_unreachable_store_is_named_without_its_secrets(tmp_path: Path) -> None:
    """The host and path, no query, no credentials."""
    environment = {**os.environ, "OSGYM_GCP_METADATA": "http://127.0.0.1:9"}
    done = subprocess.run(
        [sys.executable, str(FOLDER / "fetch.py"), "file", "gs://b/o", str(tmp_path / "x"), SHA256],
        env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "127.0.0.1/computeMetadata" in done.stderr
    assert "Traceback" not in done.stderr
