"""Access to hosts, as fleet.json and providers describe it. Pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

LOCAL = "local"
"""The ssh address that means this machine, without ssh."""


@dataclass(frozen=True, slots=True)
class SshAccess:
    """Access to a host by ssh.

    Attributes:
        address: `local` means this machine, without ssh.
        host_key: `ssh-ed25519 AAAA…`; empty: the user's known_hosts must have it.
        key_file: Private key; empty: the ssh agent's and the default keys.
        jump: Machine in between, which is entered directly; None: none.
    """

    address: str
    port: int = 22
    user: str = "root"
    host_key: str = ""
    key_file: str = ""
    jump: SshAccess | None = None

    @property
    def is_local(self) -> bool:
        return self.address == LOCAL

    @property
    def name(self) -> str:
        """The host as users know it."""
        if self.is_local:
            return LOCAL
        return f"{self.user}@{self.address}" + ("" if self.port == 22 else f":{self.port}")


class ProgramAccess(ABC):
    """Access to a host by a program of this machine, such as the command of a cloud.

    Attributes:
        chatter: Beginnings of lines that the program prints besides the command's own.
        passes_exit_code: Whether the program ends with the command's exit code.
    """

    instance: str
    chatter: ClassVar[tuple[str, ...]] = ()
    passes_exit_code: ClassVar[bool] = True

    @abstractmethod
    def shell_argv(self) -> list[str]:
        """Return the command line of a shell on the host."""

    @abstractmethod
    def command_argv(self, command: str) -> list[str]:
        """Return the command line that runs a command on the host, as a shell reads it; it never asks."""

    def console_argv(self) -> list[str]:
        """Return the command line that prints the host's console; empty: there is none."""
        return []

    def console_text(self, printed: str) -> str:
        """Return the console's text from what that command printed."""
        return printed


HostAccess = SshAccess | ProgramAccess
