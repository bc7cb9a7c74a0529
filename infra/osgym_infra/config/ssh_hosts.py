"""Existing machines in a configuration, with their logins. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from osgym_infra.config.readers import (
    ADDRESS,
    Reader,
    bad_key,
    integer,
    items,
    json_object,
    matching,
    short,
    text,
)


@dataclass(frozen=True, slots=True)
class SshLogin:
    """Machine behind ssh, with its login."""

    address: str
    port: int = 22
    user: str = "root"
    host_key: str = ""
    ssh_key: str = ""


DIRECT = SshLogin("direct")
"""What `jump` says for a host that is reached without one."""


@dataclass(frozen=True, slots=True)
class SshHost(SshLogin):
    """Existing machine; the address `local` means this one, without ssh."""

    jump: SshLogin | None = None
    max_replicas: int | None = None

    @property
    def is_local(self) -> bool:
        return self.address == "local"

    def jump_of(self, general: SshLogin | None) -> SshLogin | None:
        """Return the machine through which the host is reached; `general` is the default of all hosts."""
        jump = self.jump or general
        return None if self.is_local or jump == DIRECT else jump


LOGIN_KEYS: Mapping[str, Reader] = {
    "address": matching(ADDRESS, "a name or an IP address, or local"),
    "port": integer(1, 65535, "as TCP port"),
    "user": matching(re.compile(r"[a-z_][a-z0-9_-]{0,31}"), "a user's name"),
    "host_key": matching(re.compile(r"(ssh-ed25519|ecdsa-sha2-nistp\d+|ssh-rsa) [A-Za-z0-9+/=]+"),
                          "a line like ssh-ed25519 AAAA…"),
    "ssh_key": text,
}  # fmt: skip


def read_jump(name: str, value: object) -> SshLogin:
    """Read the machine through which others are reached; `direct`: none."""
    login = SshLogin(**_read_machine(name, json_object(value), LOGIN_KEYS))
    if login.address == "local":
        raise bad_key(name, "local is this machine", f"a bastion, or {DIRECT.address}")
    return login


HOST_KEYS: Mapping[str, Reader] = {
    **LOGIN_KEYS,
    "jump": read_jump,
    "max_replicas": integer(1, 10_000, "replicas"),
}


def read_hosts(name: str, value: object) -> tuple[SshHost, ...]:
    found = tuple(
        SshHost(**_read_machine(f"{name}[{index}]", item, HOST_KEYS))
        for index, item in enumerate(items(name, value))
    )
    if not found:
        raise bad_key(name, "is empty", '["local"] is this machine')
    return found


def _read_machine(where: str, item: object, known: Mapping[str, Reader]) -> dict[str, Any]:
    """Read `user@address`, or an object with the known keys."""
    data = {"address": item} if isinstance(item, str) else item
    if not isinstance(data, dict):
        raise bad_key(where, f"{short(item)} is not a host", '"user@address", or an object with address')
    data = dict(data)
    if isinstance(data.get("address"), str) and "@" in data["address"] and "user" not in data:
        data["user"], _, data["address"] = data["address"].partition("@")
    for key in data:
        if key not in known:
            raise bad_key(where, f"unknown key {key!r}", f"Valid keys are {', '.join(known)}")
    if "address" not in data:
        raise bad_key(where, "has no address", "a name or an IP address, or local")
    return {key: known[key](f"{where}.{key}", data[key]) for key in data}
