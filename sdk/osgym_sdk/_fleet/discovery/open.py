"""Opening of a fleet's source: its hosts, the settings that it adds, and the source to watch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from osgym_protocol.fleet_file import FleetFile, FleetFileError
from osgym_protocol.plugins import PluginError, PluginGroup, load_plugin, plugin_names
from osgym_sdk._config import ClientConfig, ClientSettings, make_config, ssl_context
from osgym_sdk._exceptions import ConfigError
from osgym_sdk._fleet.discovery.address import FORMS, NO_DEFAULTS, Kind, is_source
from osgym_sdk._fleet.discovery.file import FleetFileSource, Trusted, mark_of, named, read_fleet
from osgym_sdk.host_sources import FoundHost, HostDefaults, HostSource, Trust


@dataclass(frozen=True, slots=True)
class FleetSource:
    """Source of a client's hosts, as :meth:`AsyncClient.from_fleet` is given it; can be pickled.

    Attributes:
        source: path of a fleet's file, or URL of a cloud's or name server's list.
        poll_s: seconds between two reads of it; None: the default of its kind.
    """

    source: str | Path
    poll_s: float | None = None


@dataclass(frozen=True, slots=True)
class OpenedFleet:
    """A fleet that was read.

    Attributes:
        hosts: hosts that are known at once.
        settings: the client's settings, with authority and token of the fleet.
        source: source that lists the hosts from now on.
        pause_s: seconds between two reads of the source; None: the source's own.
    """

    hosts: tuple[FoundHost, ...]
    settings: ClientSettings
    source: HostSource
    pause_s: float | None

    def config(self) -> ClientConfig:
        """Return the client's settings; its hosts are apart, since there may be none yet."""
        return replace(make_config(**self.settings), hosts=())


def open_fleet(fleet_source: FleetSource, settings: ClientSettings) -> OpenedFleet:
    """Read a fleet's file, or the URL of a source of hosts.

    Raises:
        ConfigError: it is neither, the file cannot be used, the token has to be passed, or what the source
            needs is not installed.
    """
    source, poll_s = fleet_source.source, fleet_source.poll_s
    if poll_s is not None and poll_s <= 0:
        raise ConfigError("poll_s must be more than 0")
    text = str(source)
    if isinstance(source, str) and is_source(text):
        return OpenedFleet((), settings, source_of(text), poll_s)
    path = Path(source)
    mark = mark_of(path)
    fleet = read_fleet(path)
    whole = _with_fleet(fleet, settings)

    def trusts(newer: FleetFile) -> tuple[Trusted, Trust]:
        config = make_config(**_with_fleet(newer, settings))
        return (newer.ca, config.token), Trust(ssl_context(config.verify, config.cert), config.token)

    trusted = (fleet.ca, make_config(**whole).token)
    watched = FleetFileSource(fleet, mark, trusted, source_of, trusts)
    return OpenedFleet(named(fleet), whole, watched, poll_s)


def source_of(text: str, defaults: HostDefaults = NO_DEFAULTS) -> HostSource:
    """Return the source of a URL. Raises ConfigError if it has none, or a package is missing."""
    scheme = text.partition("://")[0]
    known = plugin_names(PluginGroup.HOST_SOURCES)
    if scheme not in known:
        more = "".join(f", {name}://…" for name in known if name not in list(Kind))
        raise ConfigError(f"{text!r} is not a source of hosts; write {FORMS}{more}")
    try:
        found: HostSource = load_plugin(PluginGroup.HOST_SOURCES, scheme)(text, defaults)
    except PluginError as exc:
        raise ConfigError(str(exc)) from exc
    return found


def _with_fleet(fleet: FleetFile, settings: ClientSettings) -> ClientSettings:
    """Return a client's settings with authority and token of a fleet's file; those that are given win.

    Raises:
        ConfigError: see :meth:`FleetFile.token` and :meth:`FleetFile.tls_context`.
    """
    whole: ClientSettings = {**settings}
    try:
        if "verify" not in settings and fleet.ca:
            whole["verify"] = fleet.tls_context()
        if settings.get("token") is None:
            whole["token"] = fleet.token() or None
    except FleetFileError as exc:
        raise ConfigError(f"{exc.problem}: pass token=..., or {exc.remedy}") from exc
    return whole
