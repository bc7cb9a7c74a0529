"""Errors of one host. Every message names the host; none holds a secret."""

from __future__ import annotations

from osgym_infra.errors import OsgymInfraError

MOST_OUTPUT_LINES = 30


class FleetHostError(OsgymInfraError):
    """Work on one host failed; other hosts are not concerned.

    Attributes:
        host: Name as users know it, `user@address:port` or `local`.
        problem: What failed, without the host.
        step: Step of the bootstrap that failed, if one did.
        touched: Whether the host may have been changed.
        remedy: Sentence about what to do; may be empty.
        at_jump: Whether it failed at the jump host.
    """

    def __init__(
        self, host: str, problem: str, step: str = "", touched: bool = False, remedy: str = ""
    ) -> None:
        self.host, self.problem, self.step, self.touched = host, problem, step, touched
        self.remedy, self.at_jump = remedy, False
        super().__init__(host, problem, step)

    def __str__(self) -> str:
        where = f"host {self.host}, step {self.step}" if self.step else f"host {self.host}"
        return f"{where}: {self.problem}" + (f". {self.remedy}" if self.remedy else "")


class FleetHostUnreachable(FleetHostError):
    """No connection to the host could be made or remade in time."""


class ConnectionLost(FleetHostUnreachable):
    """An open connection broke: the network failed, or the host restarts."""


class HostKeyMismatch(FleetHostError):
    """The host shows another key than the known one, or none is known. Nothing was sent to it."""


class LoginRefused(FleetHostError):
    """The host answers but refuses the login."""


class UnfitHost(FleetHostError):
    """The host can be reached, but is of a kind that the bootstrap does not support."""


class CommandFailed(FleetHostError):
    """A command ended with an exit code other than 0.

    Attributes:
        exit_code: Exit code of the command; negative: number of the signal.
        output: End of the command's output.
    """

    def __init__(self, host: str, command: str, exit_code: int, output: str, step: str = "") -> None:
        self.command, self.exit_code = command, exit_code
        self.output = "\n".join(output.strip().splitlines()[-MOST_OUTPUT_LINES:])
        shown = self.output or "(it printed nothing)"
        super().__init__(host, f"`{command}` ended with exit code {exit_code}:\n{shown}", step)


class CommandTimedOut(FleetHostError):
    """A command exceeded its deadline and was stopped."""


class Interrupted(FleetHostError):
    """The work was interrupted and its commands stopped; running it again continues."""
