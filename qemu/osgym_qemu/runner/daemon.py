"""Docker daemon, called in a few threads with a deadline for each call."""

from __future__ import annotations

import asyncio
import functools
import os
import socket
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from osgym_host.addresses import short_unix_path
from osgym_host.runtimes.base import RuntimeFault, RuntimeUnsupported

if TYPE_CHECKING:
    import docker

API_VERSION = "1.41"
"""API version of Docker 20.10, the oldest that is tested."""

_REMEDY = "Start it (systemctl start docker), and let this user reach it (group docker), or set DOCKER_HOST."
_CONNECT_TIMEOUT_S = 10.0
_T = TypeVar("_T")


class DockerFailed(RuntimeFault):
    """Refusal or timeout of the daemon. `gone` says that the object does not exist."""

    def __init__(self, message: str, *, gone: bool = False, conflict: bool = False) -> None:
        super().__init__(message)
        self.gone = gone
        self.conflict = conflict


class DockerDaemon:
    """Connection to the daemon of this machine.

    Args:
        base_url: `unix://` address; `DOCKER_HOST` or Docker's own default when None.
        threads: Number of simultaneous calls.
    """

    def __init__(self, base_url: str | None = None, *, threads: int = 4, timeout_s: float = 30.0) -> None:
        self._url = base_url or os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
        self._timeout_s = timeout_s
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="osgym-docker")
        self._threads = threads
        self._api: docker.APIClient | None = None

    @property
    def api(self) -> docker.APIClient:
        if self._api is None:
            raise DockerFailed("the Docker daemon was not opened")
        return self._api

    async def open(self) -> Mapping[str, Any]:
        """Connect, and return the daemon's description of itself. Idempotent.

        Raises:
            RuntimeUnsupported: The Docker SDK is missing, no daemon answers, or it is on another machine.
        """
        try:
            import docker
        except ModuleNotFoundError as exc:
            raise RuntimeUnsupported(
                "`runner: container` needs the Docker SDK for Python:",
                remedy="pip install 'osgym-qemu[docker]', or set runner to process.",
            ) from exc
        if not self._url.startswith("unix://"):
            raise RuntimeUnsupported(
                f"the Docker daemon at {self._url} is not at a unix socket",
                remedy="Machines share files with the host agent, so the daemon must be this machine's.",
            )
        try:
            # The SDK leaves its socket to the garbage collector when nobody listens.
            await self.run(_listens, self._url.removeprefix("unix://"))
            if self._api is None:
                self._api = docker.APIClient(
                    base_url=self._url,
                    version=API_VERSION,
                    timeout=round(self._timeout_s),
                    num_pools=self._threads,
                    max_pool_size=self._threads,
                )
            info: Mapping[str, Any] = await self.run(self._api.info)
        except DockerFailed as exc:
            message = f"no Docker daemon answers at {self._url}: {exc}"
            raise RuntimeUnsupported(message, remedy=_REMEDY) from exc
        return info

    async def run(self, call: Callable[..., _T], *args: Any, **kwargs: Any) -> _T:
        """Run a blocking call in a thread, which ends by the client's own deadline.

        Raises:
            DockerFailed: The daemon refused or did not answer in time.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, functools.partial(translated, call, *args, **kwargs))

    async def close(self) -> None:
        """Close connections and threads. Idempotent."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        if self._api is not None:
            self._api.close()
            self._api = None


def _listens(path: str) -> None:
    """Connect to the path and close.

    Raises:
        OSError: No process listens at the path.
    """
    with short_unix_path(path) as short, socket.socket(socket.AF_UNIX) as end:
        end.settimeout(_CONNECT_TIMEOUT_S)
        end.connect(short)


def translated(call: Callable[..., _T], *args: Any, **kwargs: Any) -> _T:
    """Call, and turn the SDK's errors into `DockerFailed`."""
    import docker.errors  # an extra, which only this runner needs
    import requests.exceptions

    try:
        return call(*args, **kwargs)
    except docker.errors.NotFound as exc:
        raise DockerFailed(str(exc.explanation or exc), gone=True) from exc
    except docker.errors.APIError as exc:
        conflict = exc.response is not None and exc.response.status_code == 409
        raise DockerFailed(str(exc.explanation or exc), conflict=conflict) from exc
    except (docker.errors.DockerException, requests.exceptions.RequestException, OSError) as exc:
        raise DockerFailed(f"the Docker daemon does not answer: {exc}") from exc
