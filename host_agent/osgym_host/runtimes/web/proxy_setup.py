"""Variables and files that make a replica's programs use the proxy. Pure."""

from __future__ import annotations

import base64
import json
import ssl
from dataclasses import dataclass

PORT = 3128
"""Port on the replica's loopback interface; the usual one of HTTP proxies."""

_PROXY = f"http://127.0.0.1:{PORT}"
_DIRECT = "localhost,127.0.0.1,::1"
_BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
_POLICY = "/etc/chromium/policies/managed/osgym-web.json"
_SETTINGS = "/etc/glib-2.0/settings/defaults"
"""File of GLib's default settings (keyfile backend, as the image's desktop has).
The path of the schema org.gnome.system.proxy is /system/proxy/."""
_DESKTOP = f"""
[system/proxy]
mode='manual'
ignore-hosts=['localhost', '127.0.0.1', '::1']

[system/proxy/http]
host='127.0.0.1'
port={PORT}

[system/proxy/https]
host='127.0.0.1'
port={PORT}
"""
AUTHORITY_NAME = "OSGym replay"
"""Subject of the authority's certificate; constant, since the name of its file depends on it."""
_HASHED = "/etc/ssl/certs/3cab321c.0"


@dataclass(frozen=True, slots=True)
class ProxySetup:
    """Variables and files for one replica.

    Attributes:
        files: Path, text and mode (`w` writes anew, `a` appends) of each file.
    """

    environment: dict[str, str]
    files: tuple[tuple[str, str, str], ...]


def proxy_setup(authority: str | None) -> ProxySetup:
    """Return the set-up of a replica.

    Args:
        authority: Certificate (PEM) that programs trust, for sites that are recorded or replayed.
    """
    environment: dict[str, str] = {}
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        environment |= {name: _PROXY, name.upper(): _PROXY}
    environment |= {"no_proxy": _DIRECT, "NO_PROXY": _DIRECT}
    # `sudo` drops the variables; apt is what is run by it.
    apt = f'Acquire::http::Proxy "{_PROXY}";\nAcquire::https::Proxy "{_PROXY}";\n'
    files = [("/etc/apt/apt.conf.d/80osgym-proxy", apt, "w"), (_SETTINGS, _DESKTOP, "a")]
    if authority is not None:
        der = base64.b64encode(ssl.PEM_cert_to_DER_cert(authority)).decode()
        files += [
            (_BUNDLE, authority, "a"),
            (_HASHED, authority, "w"),
            (_POLICY, json.dumps({"CACertificates": [der]}), "w"),
        ]
    return ProxySetup(environment, tuple(files))
