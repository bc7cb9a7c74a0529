#!/usr/bin/env python3
"""Fetches a file or a secret onto a fresh host, with nothing but Python's standard library.

    fetch.py file URI PATH SHA256     s3://bucket/key, gs://bucket/key, https://…, file://…
    fetch.py secret SOURCE PATH       aws:SECRET-ARN, gcp:projects/P/secrets/S/versions/V, file:PATH

On AWS and Google Cloud the host's own role is asked for, through the metadata service (IMDSv2 on AWS). A file
is kept only when its SHA-256 is right; a secret is written for root only, and never printed.

Exit code 1: may go away by itself (no network yet, a role that is not known everywhere yet); 3: will not.
"""

import datetime
import hashlib
import hmac
import http.client
import ipaddress
import json
import os
import re
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

TIMEOUT_S = 60
CHUNK = 1 << 20
MOST_SECRET_BYTES = 64 * 1024
MOST_ERROR_BYTES = 4096
MAY_PASS, WILL_NOT_PASS = 1, 3
"""Exit codes."""
# Other addresses are for tests, which serve the same paths on loopback.
AWS_METADATA = os.environ.get("OSGYM_AWS_METADATA", "http://169.254.169.254")
GCP_METADATA = os.environ.get("OSGYM_GCP_METADATA", "http://metadata.google.internal")
S3_ENDPOINT = os.environ.get("OSGYM_S3_ENDPOINT", "")
SECRETS_ENDPOINT = os.environ.get("OSGYM_SECRETS_ENDPOINT", "")
GCS_ENDPOINT = os.environ.get("OSGYM_GCS_ENDPOINT", "https://storage.googleapis.com")
GCP_SECRETS_ENDPOINT = os.environ.get("OSGYM_GCP_SECRETS_ENDPOINT", "https://secretmanager.googleapis.com")


class FetchFailed(Exception):
    """A file or secret could not be fetched; the message never holds a secret.

    `for_good`: the same again will fail, too. Not so 403 and 404: a role's permissions are known to all of a
    cloud's servers some minutes after they were given.
    """

    def __init__(self, why, for_good=False):
        super().__init__(why)
        self.for_good = for_good


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """Handler that follows no redirect: credentials go only to the server that was addressed."""

    def redirect_request(self, *_):
        pass


def goes_direct(url):
    """Return whether no proxy is used: for loopback and metadata services, whose answers hold credentials."""
    host = urllib.parse.urlsplit(url).hostname or ""
    services = {urllib.parse.urlsplit(service).hostname for service in (AWS_METADATA, GCP_METADATA)}
    try:
        return host in services or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def call(url, headers=None, method="GET", body=None, timeout_s=TIMEOUT_S):
    """Return an open answer, which the caller closes."""
    request = urllib.request.Request(url, data=body, headers=headers or {}, method=method)  # noqa: S310 - its callers check
    handlers = [NoRedirect] if headers else []
    if goes_direct(url):
        handlers.append(urllib.request.ProxyHandler({}))
    opener = urllib.request.build_opener(*handlers)
    try:
        return opener.open(request, timeout=timeout_s)
    except urllib.error.HTTPError as error:
        with error:
            why = f"{error.code} {error.reason}{code_in(error)}"
        # Elsewhere: a bucket of another region.
        raise FetchFailed(f"{host_of(url)} answered {why}", for_good=300 <= error.code < 400) from None
    except (urllib.error.URLError, OSError, http.client.HTTPException) as error:
        raise FetchFailed(f"{host_of(url)} cannot be reached: {getattr(error, 'reason', error)}") from None


def code_in(error):
    """Return the cloud's code of an error (`AccessDenied`, `NoSuchKey`); nothing else of it is shown."""
    try:
        text = error.read(MOST_ERROR_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError, http.client.HTTPException):
        return ""
    found = re.search(r'<Code>(\w{1,64})</Code>|"(?:reason|__type)":\s*"([\w.#]{1,64})"', text)
    return f" ({found[1] or found[2]})" if found else ""


def host_of(url):
    """Return the part of a URL that may stand in a log: neither query nor user."""
    parts = urllib.parse.urlsplit(url)
    return f"{parts.hostname}{parts.path}"


def text_of(answer):
    with answer:
        return answer.read(MOST_SECRET_BYTES + 1).decode()


def aws_identity():
    """Return region and temporary credentials of the instance's role, by IMDSv2."""
    token = text_of(
        call(f"{AWS_METADATA}/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "300"}, "PUT")
    )
    headers = {"X-aws-ec2-metadata-token": token}
    base = f"{AWS_METADATA}/latest/meta-data"
    role = text_of(call(f"{base}/iam/security-credentials/", headers)).strip().splitlines()
    if not role:
        raise FetchFailed("this instance has no role, or does not have it yet")
    keys = json.loads(text_of(call(f"{base}/iam/security-credentials/{role[0]}", headers)))
    region = text_of(call(f"{base}/placement/region", headers)).strip()
    return region, keys["AccessKeyId"], keys["SecretAccessKey"], keys["Token"]


def aws_signed(service, region, keys, method, url, body=b"", extra=None):
    """Return headers with AWS Signature Version 4.

    https://docs.aws.amazon.com/general/latest/gr/sigv4-create-canonical-request.html
    """
    access, secret, session = keys
    now = datetime.datetime.now(datetime.timezone.utc)  # noqa: UP017  # Python 3.9 hosts
    stamp, day = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")
    parts = urllib.parse.urlsplit(url)
    digest = hashlib.sha256(body).hexdigest()
    headers = {
        "host": parts.netloc,
        "x-amz-content-sha256": digest,
        "x-amz-date": stamp,
        "x-amz-security-token": session,
        **(extra or {}),
    }
    names = ";".join(sorted(headers))
    lines = [f"{name}:{headers[name]}\n" for name in sorted(headers)]
    canonical = "\n".join([method, parts.path or "/", parts.query, "".join(lines), names, digest])
    scope = f"{day}/{region}/{service}/aws4_request"
    to_sign = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = b"AWS4" + secret.encode()
    for part in (day, region, service, "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    signature = hmac.new(key, to_sign.encode(), hashlib.sha256).hexdigest()
    headers["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={access}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    del headers["host"]  # urllib sends the same itself
    return headers


def gcp_headers():
    """Return a bearer token of the instance's service account as headers."""
    url = f"{GCP_METADATA}/computeMetadata/v1/instance/service-accounts/default/token"
    token = json.loads(text_of(call(url, {"Metadata-Flavor": "Google"})))["access_token"]
    return {"Authorization": f"Bearer {token}"}


def opened(uri):
    """Open what a URI names; return the answer."""
    parts = urllib.parse.urlsplit(uri)
    if parts.scheme == "s3":
        region, *keys = aws_identity()
        base = S3_ENDPOINT or f"https://{parts.netloc}.s3.{region}.amazonaws.com"
        url = base + urllib.parse.quote(parts.path)
        return call(url, aws_signed("s3", region, keys, "GET", url))
    if parts.scheme == "gs":
        name = urllib.parse.quote(parts.path.lstrip("/"), safe="")
        return call(f"{GCS_ENDPOINT}/storage/v1/b/{parts.netloc}/o/{name}?alt=media", gcp_headers())
    if parts.scheme in ("https", "file"):
        return call(uri)
    raise FetchFailed(f"{uri}: the address must begin with s3://, gs://, https:// or file://", for_good=True)


def put_object(uri, text, timeout_s):
    """Write a small object into a bucket; an existing one is replaced."""
    parts = urllib.parse.urlsplit(uri)
    body = text.encode()
    if parts.scheme == "s3":
        region, *keys = aws_identity()
        base = S3_ENDPOINT or f"https://{parts.netloc}.s3.{region}.amazonaws.com"
        url = base + urllib.parse.quote(parts.path)
        headers = aws_signed("s3", region, keys, "PUT", url, body, {"content-type": "application/json"})
        text_of(call(url, headers, "PUT", body, timeout_s))
    elif parts.scheme == "gs":
        name = urllib.parse.quote(parts.path.lstrip("/"), safe="")
        url = f"{GCS_ENDPOINT}/upload/storage/v1/b/{parts.netloc}/o?uploadType=media&name={name}"
        headers = {**gcp_headers(), "Content-Type": "application/json"}
        text_of(call(url, headers, "POST", body, timeout_s))
    else:
        raise FetchFailed(f"{uri}: the address must begin with s3:// or gs://", for_good=True)


def fetch_file(uri, path, sha256):
    """Download to `path`, atomically, and only what has that SHA-256; to a `file://` make a link."""
    digest = hashlib.sha256()
    target = Path(path).absolute()
    parts = urllib.parse.urlsplit(uri)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=".fetch-")
    temporary = Path(name)
    try:
        # A file of this host is not copied: images are large.
        here = parts.scheme == "file"
        got = 0
        with os.fdopen(handle, "wb") as out, opened(uri) as answer:
            promised = answer.headers.get("Content-Length")
            while chunk := answer.read(CHUNK):
                got += len(chunk)
                digest.update(chunk)
                if not here:
                    out.write(chunk)
        if promised is not None and got < int(promised):
            raise FetchFailed(f"{host_of(uri)} broke off after {got} of {promised} bytes")
        if digest.hexdigest() != sha256.removeprefix("sha256:").lower():
            raise FetchFailed(f"{uri} has SHA-256 {digest.hexdigest()}, not {sha256}", for_good=True)
        if here:
            temporary.unlink()
            temporary.symlink_to(urllib.parse.unquote(parts.path))
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def secret_text(source):
    """Return the content of a secret: from a cloud's store, or a file that only root reads."""
    kind, _, name = source.partition(":")
    if kind == "aws":
        region, *keys = aws_identity()
        url = SECRETS_ENDPOINT or f"https://secretsmanager.{region}.amazonaws.com/"
        body = json.dumps({"SecretId": name}).encode()
        extra = {
            "content-type": "application/x-amz-json-1.1",
            "x-amz-target": "secretsmanager.GetSecretValue",
        }
        headers = aws_signed("secretsmanager", region, keys, "POST", url, body, extra)
        return json.loads(text_of(call(url, headers, "POST", body)))["SecretString"]
    if kind == "gcp":
        import base64

        answer = json.loads(text_of(call(f"{GCP_SECRETS_ENDPOINT}/v1/{name}:access", gcp_headers())))
        return base64.b64decode(answer["payload"]["data"]).decode()
    if kind == "file":
        with Path(name).open(encoding="utf-8") as file:
            return file.read(MOST_SECRET_BYTES + 1)
    raise FetchFailed("a secret must be named aws:…, gcp:… or file:…", for_good=True)


def fetch_secret(source, path):
    """Write the token as an environment file of systemd, for root only.

    The secret is the token itself, or JSON with `token` and perhaps `ca`, `certificate` and `key`, which are
    written to `tls/{ca,cert,key}.pem` beside.
    """
    text = secret_text(source).strip()
    found = json.loads(text) if text.startswith("{") else {"token": text}
    token = str(found.get("token", ""))
    if not 16 <= len(token) <= 1024 or any(c <= " " or c in "\"'\\$`" for c in token):
        raise FetchFailed("the secret must hold a token of 16 to 1024 plain characters", for_good=True)
    target = Path(path).absolute()
    pems = {name: found.get(key) for name, key in (("ca", "ca"), ("key", "key"), ("cert", "certificate"))}
    if all(isinstance(pem, str) and pem.startswith("-----BEGIN ") for pem in pems.values()):
        (target.parent / "tls").mkdir(mode=0o750, exist_ok=True)
        for name, pem in pems.items():
            place(target.parent / "tls" / f"{name}.pem", pem)
    place(target, f"OSGYM_TOKEN={token}\n")


def place(path, text):
    """Write a file of mode 0600; an equal one keeps its owner and mode."""
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".secret-")  # mode 0600
    with os.fdopen(handle, "w", encoding="utf-8") as out:
        out.write(text)
    Path(name).replace(path)


def main(arguments):
    try:
        if arguments[:1] == ["file"] and len(arguments) == 4:
            fetch_file(*arguments[1:])
        elif arguments[:1] == ["secret"] and len(arguments) == 3:
            fetch_secret(*arguments[1:])
        else:
            print(__doc__, file=sys.stderr)
            return 2
    except (FetchFailed, OSError, KeyError, ValueError, http.client.HTTPException) as error:
        name = "" if isinstance(error, FetchFailed) else f"{type(error).__name__}: "
        print(f"fetch: {name}{error}", file=sys.stderr)
        return WILL_NOT_PASS if getattr(error, "for_good", False) else MAY_PASS
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
