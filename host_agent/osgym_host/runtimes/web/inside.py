"""What a replica gets so that its programs use the proxy: variables and files. Pure."""

from __future__ import annotations

import base64
import json
import ssl
from dataclasses import dataclass

PORT = 3128
"""On the replica's loopback interface; the number that proxies of HTTP commonly have."""

_PROXY = f"http://127.0.0.1:{PORT}"
_DIRECT = "localhost,127.0.0.1,::1"
_BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
_POLICY = "/etc/chromium/policies/managed/osgym-web.json"
_SETTINGS = "/etc/glib-2.0/settings/defaults"
"""What GLib's settings are where nobody has set them (the keyfile backend, which the image's desktop has).
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
"""The subject of the authority's certificate: always the same, so that the name of its file is."""
_HASHED = "/etc/ssl/certs/3cab321c.0"


@dataclass(frozen=True, slots=True)
class Given:
    """What a replica gets.

    Attributes:
        environment: Variables of its session.
        files: Path, text, and `w` or `a`: written anew or added to.
    """

    environment: dict[str, str]
    files: tuple[tuple[str, str, str], ...]


def given(authority: str | None) -> Given:
    """Return what makes programs use the proxy.

    Args:
        authority: Certificate (PEM) that they are to trust, for sites that are recorded or replayed.
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
    return Given(environment, tuple(files))
