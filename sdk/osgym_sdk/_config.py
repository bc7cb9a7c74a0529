"""The settings of a client: hosts, token, TLS, deadlines, limits. Read once, when it is made."""

from __future__ import annotations

import os
import random
import ssl
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack
from urllib.parse import urlsplit

from osgym_protocol.codes import ThinkCharge, ThinkMode
from osgym_protocol.proxies import HOST_PROXY_VARIABLE
from osgym_sdk._exceptions import ConfigError
from osgym_sdk._inputs.options import as_think, as_think_charge, as_token_charge
from osgym_sdk._inputs.reading import Reading, as_reading
from osgym_sdk._tracing import RequestTracer, request_tracer

if TYPE_CHECKING:
    import httpx

    from osgym_protocol.grammars import Coordinates

DEFAULT_HOST = "http://127.0.0.1:20000"
DEFAULT_PORT = 20000

Verify = bool | str | Path | ssl.SSLContext
Cert = str | Path | tuple[str | Path, str | Path]


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Deadlines in seconds. Each is for a whole call, its retries included."""

    connect_s: float = 5.0
    control_s: float = 15.0
    """Deadline of reading the state of a host or an episode, and of closing."""
    step_s: float = 60.0
    """Deadline of a step: its actions, the wait for the screen, and the frame."""
    setup_s: float = 300.0
    """Deadline of the task's set-up, on top of the wait for a replica."""
    evaluate_s: float = 1200.0
    """Deadline of an evaluation. By default, a host takes at most 300 s for the check, 600 s for turns at the
    evaluator, and 140 s for a trial on an untouched desktop after a failed check."""
    retry_s: float = 10.0
    """Time for which a host that does not answer is called again before its episode counts as lost."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Connections per host. Calls of one kind never wait for those of another."""

    control: int = 16
    long: int = 2048
    """Connections for steps, creates and evaluations, each of which holds one while it runs."""
    heartbeat: int = 2
    keepalive_s: float = 60.0


class ClientSettings(TypedDict, total=False):
    """Arguments of :class:`AsyncClient` and :class:`Client`."""

    token: str | None
    """Bearer token; ``OSGYM_TOKEN`` by default."""
    verify: Verify
    """True, False, a CA file or folder, or a TLS context; ``OSGYM_CA`` by default."""
    cert: Cert | None
    """Client certificate: a file, or certificate and key."""
    timeouts: Timeouts | None
    """Deadlines in seconds."""
    limits: Limits | None
    """Connections per host."""
    transport: Callable[[], httpx.AsyncBaseTransport] | None
    """Function that makes the httpx transport of each connection, in place of our own."""
    proxy: str | None
    """URL of a proxy; those of the environment are not used, since hosts are usually close by."""
    server_names: Mapping[str, str] | None
    """Name in a host's certificate where that is not its address, by URL."""
    handle_sigterm: bool
    """True, the default: while the client is open, SIGTERM ends the process as Ctrl-C does, so that leases
    are given back; only where the process has no handler of its own."""
    actions: str | None
    """Grammar of all episodes; see :class:`EpisodeArguments`."""
    coordinates: Coordinates | None
    """Coordinates of all episodes; see :class:`EpisodeArguments`."""
    think: ThinkMode | Literal["live", "paused"] | None
    """What the desktops of all episodes do while their policy thinks; see :class:`EpisodeArguments`."""
    think_charge: ThinkCharge | Literal["nothing", "real"] | float | None
    """Charge of all thoughts; see :class:`EpisodeArguments`."""


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """The settings of one client; made by :func:`make_config`."""

    hosts: tuple[str, ...]
    token: str | None = field(default=None, repr=False)
    verify: Verify = True
    cert: Cert | None = None
    timeouts: Timeouts = Timeouts()
    limits: Limits = Limits()
    transport: Callable[[], httpx.AsyncBaseTransport] | None = None
    proxy: str | None = None
    server_names: Mapping[str, str] = field(default_factory=dict)
    handle_sigterm: bool = True
    reading: Reading | None = None
    think: ThinkMode | None = None
    think_charge: ThinkCharge | float | None = None
    tracer: RequestTracer | None = None
    """Tracer of steps; None where spans are off."""
    client_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Name by which hosts tell this client from others at its address that wait for replicas too."""
    clock: Callable[[], float] = time.monotonic
    rng: random.Random = field(default_factory=random.Random, repr=False)


def parse_hosts(
    hosts: str | Sequence[str] | None, environ: Mapping[str, str] = os.environ
) -> tuple[str, ...]:
    """Return host URLs from an argument, else ``OSGYM_HOSTS`` (comma separated), else port 20000 here.

    ``desk1`` and ``desk1:20000`` are short for ``http://desk1:20000``.

    Raises:
        ConfigError: one of them is not an http or https URL of a host, or one is named twice.
    """
    if hosts is None:
        hosts = environ.get("OSGYM_HOSTS") or DEFAULT_HOST
    listed = hosts.split(",") if isinstance(hosts, str) else list(hosts)
    urls = tuple(_host_url(item.strip()) for item in listed if item.strip())
    if not urls:
        raise ConfigError("no host given: pass hosts=... or set OSGYM_HOSTS")
    if len(set(urls)) != len(urls):
        raise ConfigError(f"a host is named twice in {', '.join(urls)}")
    return urls


def _host_url(text: str) -> str:
    short = "://" not in text
    try:
        parts = urlsplit(f"http://{text}" if short else text)
        port = parts.port
    except ValueError as exc:
        raise ConfigError(f"{text!r} is not a host URL: {exc}") from exc
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"{text!r} is not a host URL; write http://host:port")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ConfigError(f"{parts.hostname}: a host URL has no user, query or fragment; pass token=...")
    if port is None and short:
        port = DEFAULT_PORT
    name = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    netloc = name if port is None else f"{name}:{port}"
    return f"{parts.scheme}://{netloc}{parts.path.rstrip('/')}"


def ssl_context(verify: Verify, cert: Cert | None) -> ssl.SSLContext:
    """Return the one TLS context that all connections of a client share.

    Raises:
        ConfigError: the CA or certificate file cannot be read.
    """
    if isinstance(verify, ssl.SSLContext):
        return verify
    try:
        if verify is False:
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif verify is True:
            context = ssl.create_default_context()
        else:
            path = Path(verify)
            is_dir = path.is_dir()
            context = ssl.create_default_context(
                cafile=None if is_dir else str(path), capath=str(path) if is_dir else None
            )
        if cert is not None:
            chain, key = cert if isinstance(cert, tuple) else (cert, None)
            context.load_cert_chain(str(chain), str(key) if key is not None else None)
    except (OSError, ssl.SSLError) as exc:
        raise ConfigError(f"TLS settings: {exc}") from exc
    return context


def make_config(
    hosts: str | Sequence[str] | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    **settings: Unpack[ClientSettings],
) -> ClientConfig:
    """Return the settings: arguments first, then the variables.

    They are ``OSGYM_HOSTS``, ``OSGYM_TOKEN``, ``OSGYM_CA`` and ``OSGYM_PROXY``. ``HTTP_PROXY`` and its kind
    do not count: their proxy would read the token in requests to ``http://`` URLs.

    Raises:
        ConfigError: A setting is wrong.
    """
    given: dict[str, Any] = {name: value for name, value in settings.items() if value is not None}
    if given.get("verify", True) is True and environ.get("OSGYM_CA"):
        given["verify"] = environ["OSGYM_CA"]
    given["token"] = given.get("token") or environ.get("OSGYM_TOKEN") or None
    given["proxy"] = given.get("proxy") or environ.get(HOST_PROXY_VARIABLE) or None
    given["reading"] = as_reading(given.pop("actions", None), given.pop("coordinates", None))
    if "think" in given:
        given["think"] = as_think(given["think"])
    if "think_charge" in given:
        charge = given["think_charge"]
        given["think_charge"] = (
            as_token_charge(charge) if isinstance(charge, int | float) else as_think_charge(charge)
        )
        if given.get("think") is not ThinkMode.PAUSED:
            raise ConfigError('think_charge is for think="paused"')
    given["tracer"] = request_tracer(environ)
    return ClientConfig(parse_hosts(hosts, environ), **given)
