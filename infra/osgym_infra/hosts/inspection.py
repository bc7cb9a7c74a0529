"""Inspects a host: what is installed, whether it serves. Changes nothing."""

from __future__ import annotations

from osgym_infra.fleet.boot import DATA, TARGET
from osgym_infra.hosts.spec import ObservedHost, read_state
from osgym_infra.links.errors import UnfitHost
from osgym_infra.links.link import HostLink, check

LOOK_S = 60.0

# Prints one flat JSON object of texts, cut to what cannot break it; a certificate's line ends are `|`.
SCRIPT = f"""exec 2>/dev/null
say() {{ printf '"%s": "%s"' "$1" "$(printf '%s' "$2" | tr -cd 'A-Za-z0-9 .:_|/+=-' | head -c 20000)"; }}
status=$({TARGET}/bootstrap.sh status 2>/dev/null)
part() {{ printf '%s' "$status" | sed -n "s/.*\\"$1\\": \\"\\{{0,1\\}}\\([a-z0-9:]*\\).*/\\1/p"; }}
holding() {{ cd "$2" && for d in *; do [ -e "$d/$1" ] && printf '%s ' "$d"; done; }}
# What the agent itself says. The token goes through a pipe, never through an argument that others could see.
asked() {{ sed -n 's/^OSGYM_TOKEN=/Authorization: Bearer /p' /etc/osgym/secret.env |
  curl -fsS -m 10 --noproxy '*' --cacert /etc/osgym/tls/ca.pem -H @- "https://127.0.0.1:$(part port)$1"; }}
[ -r /etc/os-release ] && . /etc/os-release
printf '{{'; say uid "$(id -u)"
printf ', '; say system "$ID"
printf ', '; say version "$VERSION_ID"
printf ', '; say machine "$(uname -m)"
printf ', '; say agent "$(readlink /opt/osgym/current 2>/dev/null)"
printf ', '; say agents "$(holding .complete /opt/osgym)"
data=$(sed -n "s/^OSGYM_DATA='\\{{0,1\\}}\\([^']*\\).*/\\1/p" /etc/osgym/bootstrap.env)
printf ', '; say images "$(holding manifest.json "${{data:-{DATA}}}/images")"
printf ', '; say image_digest "$(part image_digest)"
printf ', '; say image_archive "$(cat /etc/osgym/.image)"
printf ', '; say active "$(part active)"
printf ', '; say serving "$(part serving)"
printf ', '; say admits "$(asked /v1/host | sed -n 's/.*"max_replicas": *\\([0-9]*\\).*/\\1/p')"
printf ', '; say token_digest "$(sha256sum < /etc/osgym/secret.env | cut -c1-64)"
printf ', '; say certificate "$(tr '\\n' '|' < /etc/osgym/tls/cert.pem 2>/dev/null)"
printf '}}\\n'
"""


async def inspect_host(link: HostLink) -> ObservedHost:
    """Return what is on a host that is connected.

    Raises:
        UnfitHost: it does not answer like a Linux machine with a shell.
        HostError: the connection broke, or we may not run commands.
    """
    output = await check(link, ["sh", "-c", SCRIPT], timeout_s=LOOK_S)
    try:
        return read_state(output)
    except (ValueError, KeyError, TypeError) as error:
        raise UnfitHost(link.name, f"it answers with something else: {output[-200:]!r}") from error
