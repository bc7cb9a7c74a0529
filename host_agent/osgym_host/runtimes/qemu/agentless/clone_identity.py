"""Identity of a clone without our agent, as far as its server allows. Nothing of it is certain.

A guest with OSWorld's server runs commands, as an ordinary user; its published images let that user be
root with a known password. So random state is stirred, and clock, names and machine-id are set where the
password is right. Whoever needs certainty bakes our agent in.
"""

from __future__ import annotations

import json
import re
import secrets
import time
import uuid

from osgym_host.addresses import GuestAddress
from osgym_host.guest_client.errors import GuestError
from osgym_host.guest_client.http import HttpClient
from osgym_host.images.disks.manifest import GuestKind
from osgym_host.runtimes.base import HOSTNAME

TIMEOUT_S = 10.0
PASSWORDS = ("password", "osworld-public-evaluation")
"""Passwords of the user in OSWorld's published images (its README: local images, images for clouds)."""
_MAX_ANSWER_BYTES = 64 * 1024
_SEED_BYTES = 64
_PARTS = re.compile(r"applied=(\w+)")

NOTES: dict[GuestKind, tuple[str, ...]] = {
    GuestKind.OSGYM: (),
    GuestKind.OSWORLD: (
        "The guest runs OSWorld's server: a clone's random state is stirred, its clock and names are set "
        "where sudo works with a known password; nothing of it is acknowledged.",
        "Its screen is judged final from outside: pixels and processors, not timers.",
    ),
    GuestKind.NONE: (
        "The guest has no agent: clones share random state, names and machine-id, and their clock is that "
        "of the snapshot.",
        "Files, commands and the accessibility tree are not available (not_available); text is typed on a "
        "US keyboard.",
        "Its screen is judged final from outside: pixels and processors, not timers.",
    ),
}
"""Restrictions of clones of such guests, for `Capabilities.notes`."""


def script(hostname: str, seed: str, time_s: float, machine_id: str) -> str:
    """Return the shell script for the guest; it prints which parts were applied."""
    passwords = " ".join(PASSWORDS)
    return f"""
printf %s {seed} > /dev/urandom 2>/dev/null && echo applied=seed
for word in {passwords}; do
  if sudo -n true 2>/dev/null; then root() {{ sudo -n "$@" 2>/dev/null; }}; break; fi
  if echo "$word" | sudo -S -p "" true 2>/dev/null; then
    root() {{ echo "$word" | sudo -S -p "" "$@" 2>/dev/null; }}; break
  fi
done
command -v root >/dev/null 2>&1 || exit 0
root date -s @{time_s:.3f} >/dev/null && echo applied=time
root hostname {hostname} && echo applied=hostname
root sh -c "echo {machine_id} > /etc/machine-id" && echo applied=machine_id
"""


async def apply_clone_identity(address: GuestAddress) -> frozenset[str]:
    """Try to give a clone an identity of its own, within `TIMEOUT_S`.

    Returns:
        Names of the parts that the guest says were applied: `seed`, `time`, `hostname`, `machine_id`.
        Empty when it does not answer.
    """
    text = script(HOSTNAME, secrets.token_hex(_SEED_BYTES), time.time(), uuid.uuid4().hex)
    body = json.dumps({"command": ["sh", "-c", text], "shell": False}).encode()
    http = HttpClient(address, max_connections=1)
    try:
        answer = await http.request("POST", "/execute", body, timeout_s=TIMEOUT_S, max_body=_MAX_ANSWER_BYTES)
        said = json.loads(bytes(answer.body))
    except (GuestError, ValueError, RecursionError):
        return frozenset()
    finally:
        http.close()
    output = said.get("output") if isinstance(said, dict) else None
    known = {"seed", "time", "hostname", "machine_id"}
    return frozenset(_PARTS.findall(output)) & known if isinstance(output, str) else frozenset()
