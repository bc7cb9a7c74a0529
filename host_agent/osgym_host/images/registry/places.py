"""Places that hold an OCI image layout: a folder, S3, GCS, or a web server that is only read."""

from __future__ import annotations

import os
import shutil
import tempfile
import urllib.parse
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from osgym_host.images.registry.errors import RegistryCode, RegistryError
from osgym_protocol.http_clients import make_client
from osgym_protocol.proxies import environment_route

CONNECT_S, READ_S = 10.0, 60.0
BLOCK = 1 << 20
_GCS = "https://storage.googleapis.com"
_GCS_SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"


class Place(ABC):
    """Objects by name below one address. Names are of the layout, never of a document in it.

    Attributes:
        label: Address, for messages.
    """

    def __init__(self, label: str) -> None:
        self.label = label

    @abstractmethod
    def size(self, name: str) -> int | None:
        """Return the size of an object in bytes, or None if there is none.

        Raises:
            RegistryError: The place cannot be reached.
        """

    @abstractmethod
    def read(self, name: str, offset: int = 0) -> Iterator[bytes]:
        """Yield the content of an object from `offset` on.

        Raises:
            RegistryError: The place has no object of this name, or cannot be reached.
        """

    def write(self, name: str, source: Path) -> None:
        """Store a file as an object; readers see all of it or nothing.

        Raises:
            RegistryError: The place cannot be written.
        """
        raise RegistryError(RegistryCode.UNSUPPORTED_PLACE, f"{self.label} can only be pulled from")

    def missing(self, name: str) -> RegistryError:
        return RegistryError(RegistryCode.NOT_FOUND, f"{self.label} has no {name}")

    def failed(self, error: object) -> RegistryError:
        return RegistryError(
            RegistryCode.UNREACHABLE, f"{self.label}: {error}", "try again: it goes on where it stopped"
        )


def open_place(address: str) -> Place:
    """Return the place of an address: a folder, `file://`, `s3://`, `gs://`, `https://` or `http://`.

    Raises:
        RegistryError: The scheme is another one, or a library is not installed.
    """
    parts = urllib.parse.urlsplit(address)
    if "://" not in address:
        return FolderPlace(Path(address))
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return FolderPlace(Path(urllib.parse.unquote(parts.path)))
    if parts.scheme in ("http", "https") and parts.hostname:
        return HttpPlace(address)
    if parts.scheme in ("s3", "gs") and parts.netloc:
        kind = S3Place if parts.scheme == "s3" else GcsPlace
        return kind(address, parts.netloc, parts.path.strip("/"))
    raise RegistryError(
        RegistryCode.UNSUPPORTED_PLACE,
        f"{address!r} is no place",
        "a folder, s3://BUCKET/PREFIX, gs://… or https://…",
    )


class FolderPlace(Place):
    """A folder of a file system."""

    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder))
        self._folder = folder

    def size(self, name: str) -> int | None:
        path = self._folder / name
        return path.stat().st_size if path.is_file() else None

    def read(self, name: str, offset: int = 0) -> Iterator[bytes]:
        if not (self._folder / name).is_file():
            raise self.missing(name)
        try:
            with (self._folder / name).open("rb") as file:
                file.seek(offset)
                while data := file.read(BLOCK):
                    yield data
        except OSError as error:
            raise self.failed(error.strerror) from error

    def write(self, name: str, source: Path) -> None:
        target = self._folder / name
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            handle, made = tempfile.mkstemp(prefix=".new-", dir=target.parent)
            try:
                with os.fdopen(handle, "wb") as out, source.open("rb") as file:
                    shutil.copyfileobj(file, out, BLOCK)
                    out.flush()
                    os.fsync(out.fileno())
                Path(made).chmod(0o644)
                Path(made).replace(target)
            except BaseException:
                Path(made).unlink(missing_ok=True)
                raise
        except OSError as error:
            raise self.failed(error.strerror) from error


class HttpPlace(Place):
    """A prefix of a web server, such as a cache or another host that serves its folder."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self._base = address.rstrip("/")
        timeout = httpx.Timeout(READ_S, connect=CONNECT_S)
        self._client = make_client(environment_route(os.environ), timeout=timeout)

    def size(self, name: str) -> int | None:
        try:
            answer = self._client.head(f"{self._base}/{name}")
        except httpx.HTTPError as error:
            raise self.failed(error) from error
        return int(answer.headers.get("Content-Length", 0)) if answer.status_code == 200 else None

    def read(self, name: str, offset: int = 0) -> Iterator[bytes]:
        headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={offset}-"} if offset else {})}
        try:
            with self._client.stream("GET", f"{self._base}/{name}", headers=headers) as answer:
                if answer.status_code == 404:
                    raise self.missing(name)
                if answer.status_code not in (200, 206):
                    raise self.failed(f"{name}: {answer.status_code} {answer.reason_phrase}")
                skip = offset if answer.status_code == 200 else 0  # a server without ranges sends all of it
                for data in answer.iter_bytes(BLOCK):
                    if len(data) > skip:
                        yield data[skip:]
                    skip = max(0, skip - len(data))
        except httpx.HTTPError as error:
            raise self.failed(error) from error


class S3Place(Place):
    """A prefix of an S3 bucket, with the default credentials of AWS."""

    def __init__(self, address: str, bucket: str, prefix: str) -> None:
        """Connect at the first call.

        Raises:
            RegistryError: boto3 is not installed, or knows no region.
        """
        super().__init__(address)
        try:
            import boto3
            from botocore.config import Config
            from botocore.exceptions import BotoCoreError, ClientError
        except ImportError as error:
            hint = "pip install 'osgym-host[s3]'"
            raise RegistryError(RegistryCode.UNSUPPORTED_PLACE, "s3:// needs boto3", hint) from error
        self._bucket, self._prefix = bucket, f"{prefix}/" if prefix else ""
        self._faults: tuple[type[Exception], ...] = (BotoCoreError, ClientError, boto3.exceptions.Boto3Error)
        config = Config(connect_timeout=CONNECT_S, read_timeout=READ_S, retries={"max_attempts": 4})
        try:
            self._client: Any = boto3.client("s3", config=config)
        except self._faults as error:
            raise self.failed(error) from error

    def size(self, name: str) -> int | None:
        try:
            found = self._client.head_object(Bucket=self._bucket, Key=self._prefix + name)
        except self._faults as error:
            if self._absent(error):
                return None
            raise self.failed(error) from error
        return int(found["ContentLength"])

    def read(self, name: str, offset: int = 0) -> Iterator[bytes]:
        given = {"Range": f"bytes={offset}-"} if offset else {}
        try:
            answer = self._client.get_object(Bucket=self._bucket, Key=self._prefix + name, **given)
            yield from answer["Body"].iter_chunks(BLOCK)
        except self._faults as error:
            raise self.missing(name) if self._absent(error) else self.failed(error) from error

    def write(self, name: str, source: Path) -> None:
        try:
            self._client.upload_file(str(source), self._bucket, self._prefix + name)
        except self._faults as error:
            raise self.failed(error) from error

    @staticmethod
    def _absent(error: Exception) -> bool:
        code = getattr(error, "response", {}).get("Error", {}).get("Code")
        return code in ("404", "NoSuchKey", "NotFound")


class GcsPlace(Place):
    """A prefix of a bucket of Google Cloud Storage, with Google's default credentials."""

    def __init__(self, address: str, bucket: str, prefix: str) -> None:
        """Connect at the first call; with STORAGE_EMULATOR_HOST to that server, without credentials.

        Raises:
            RegistryError: google-auth is not installed, or finds no credentials.
        """
        super().__init__(address)
        try:
            import google.auth
            import google.auth.credentials
            import requests
            from google.auth.exceptions import GoogleAuthError
            from google.auth.transport.requests import AuthorizedSession
        except ImportError as error:
            hint = "pip install 'osgym-host[gcp]'"
            raise RegistryError(RegistryCode.UNSUPPORTED_PLACE, "gs:// needs google-auth", hint) from error
        self._bucket, self._prefix = bucket, f"{prefix}/" if prefix else ""
        self._faults: tuple[type[Exception], ...] = (GoogleAuthError, requests.RequestException)
        emulator = os.environ.get("STORAGE_EMULATOR_HOST", "")
        self._base = (emulator if "://" in emulator else f"http://{emulator}") if emulator else _GCS
        try:
            anonymous = google.auth.credentials.AnonymousCredentials() if emulator else None  # type: ignore[no-untyped-call]
            credentials = anonymous or google.auth.default(scopes=[_GCS_SCOPE])[0]
        except GoogleAuthError as error:
            raise self.failed(error) from error
        self._session: Any = AuthorizedSession(credentials)  # type: ignore[no-untyped-call]

    def size(self, name: str) -> int | None:
        answer = self._call("GET", self._object(name))
        return int(answer.json()["size"]) if answer.status_code == 200 else None

    def read(self, name: str, offset: int = 0) -> Iterator[bytes]:
        headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={offset}-"} if offset else {})}
        with self._call("GET", self._object(name) + "?alt=media", headers=headers, stream=True) as answer:
            if answer.status_code == 404:
                raise self.missing(name)
            try:
                yield from answer.iter_content(BLOCK)
            except self._faults as error:
                raise self.failed(error) from error

    def write(self, name: str, source: Path) -> None:
        key = urllib.parse.quote(self._prefix + name, safe="")
        url = f"{self._base}/upload/storage/v1/b/{self._bucket}/o?uploadType=media&name={key}"
        with source.open("rb") as file:
            if self._call("POST", url, data=file).status_code == 404:
                raise self.missing("such bucket")

    def _object(self, name: str) -> str:
        key = urllib.parse.quote(self._prefix + name, safe="")
        return f"{self._base}/storage/v1/b/{self._bucket}/o/{key}"

    def _call(self, method: str, url: str, **given: Any) -> Any:
        try:
            answer = self._session.request(method, url, timeout=(CONNECT_S, READ_S), **given)
            if answer.status_code != 404:
                answer.raise_for_status()
            return answer
        except self._faults as error:
            raise self.failed(error) from error
