"""`osgym fleet wait`: until every host of a fleet.json has a desktop, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from osgym_infra.cli.common import BAD_INPUT, CANNOT_MEET, exits
from osgym_infra.errors import BadInput, OsgymInfraError

if TYPE_CHECKING:
    from osgym_sdk import Client

LOOK_S = 2.0
ASK_S = 15.0
"""For the answers of all hosts together, each time."""
TIMEOUT_S = 1800.0
"""A cloud's host takes some minutes to its first desktop; a slow download of a large image can take more."""

RENEWED = (
    "after a rotation, run the export again: osgym fleet export --out fleet.json (own machines: "
    "--token-file token)"
)


class Said(Enum):
    """What a host's answer means for whoever waits."""

    READY = "ready"
    NOT_YET = "not yet"
    NEVER = "never"
    """Waiting does not help: our token or our certificate authority is not the host's."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer of one host, in words."""

    said: Said
    text: str


def judge(answer: Any) -> Answer:
    """Return the answer of a host's state, or of the error instead of one. Pure.

    Args:
        answer: Value of `Client.host_states`.
    """
    from osgym_sdk import AuthError, OSGymError

    if isinstance(answer, AuthError):
        return Answer(Said.NEVER, f"refuses the token ({_line(answer)})")
    if isinstance(answer, OSGymError):
        if any("CERTIFICATE_VERIFY_FAILED" in str(cause) for cause in _causes(answer)):
            return Answer(Said.NEVER, f"shows a certificate that is not of this fleet.json ({_line(answer)})")
        return Answer(Said.NOT_YET, _line(answer))
    capacity = answer.capacity
    desktops = f"{capacity.ready + capacity.leased} of {capacity.max_replicas} desktops"
    if answer.draining:
        return Answer(Said.NOT_YET, "drains and accepts no new episodes")
    if capacity.ready + capacity.leased == 0:
        return Answer(Said.NOT_YET, f"answers, but has no desktop yet ({capacity.starting} start)")
    return Answer(Said.READY, f"ready: {desktops}")


def _line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


@dataclass
class Wait:
    """Asks all hosts again and again, and says of each what changed."""

    ask: Callable[[], Mapping[str, Any]]
    say: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def until_ready(self, timeout_s: float) -> dict[str, Answer]:
        """Return each host's last answer, once all are ready, one cannot become ready, or time is up."""
        end_s = self.clock() + timeout_s
        known: dict[str, Answer] = {}
        while True:
            answers = {url: judge(answer) for url, answer in self.ask().items()}
            for url, answer in answers.items():
                if known.get(url) != answer:
                    self.say(f"{url}: {answer.text}")
            known = answers
            if any(one.said is Said.NEVER for one in known.values()):
                return known
            if all(one.said is Said.READY for one in known.values()) or self.clock() >= end_s:
                return known
            self.sleep(min(LOOK_S, max(0.0, end_s - self.clock())))


@click.command(epilog="\b\nExamples:\n  osgym fleet wait --timeout-s 900\n")
@click.option(
    "--fleet", "path", type=click.Path(path_type=Path), default="fleet.json", show_default=True,
    help="File that `osgym fleet export` wrote.",
)  # fmt: skip
@click.option(
    "--timeout-s", type=click.FloatRange(min=0), default=TIMEOUT_S, show_default=True,
    help="Seconds to wait for all hosts.",
)  # fmt: skip
@exits
def wait(path: Path, timeout_s: float) -> None:
    """Wait until every host has a ready desktop, and print what each host answers meanwhile.

    Exit codes: 0 all hosts are ready; 1 some are not ready in time; 2 waiting does not help: a host refuses
    the token, its certificate is of another authority (as after a rotation), or the file cannot be used.
    """
    client = _client(path)
    try:
        asked = Wait(lambda: client.host_states(timeout_s=ASK_S), lambda line: click.echo(line, err=True))
        found = asked.until_ready(timeout_s)
    finally:
        client.close()
    away = {url: answer for url, answer in found.items() if answer.said is not Said.READY}
    if not away:
        click.echo(f"{len(found)} of {len(found)} hosts are ready")
        return
    never = [url for url, answer in away.items() if answer.said is Said.NEVER]
    click.echo(f"{len(found) - len(away)} of {len(found)} hosts are ready", err=True)
    for url, answer in away.items():
        click.echo(f"wait: {url}: {answer.text}", err=True)
    if never:
        click.echo(f"wait: waiting longer does not help; {RENEWED}", err=True)
        raise SystemExit(BAD_INPUT)
    click.echo(f"wait: the hosts were not ready within {timeout_s:g} s", err=True)
    raise SystemExit(CANNOT_MEET)


def _client(path: Path) -> Client:
    """Return a client of the fleet.

    Raises:
        OsgymInfraError: The SDK is not installed here.
        BadInput: The file cannot be used, or its token is missing.
    """
    try:
        from osgym_sdk import Client, ConfigError
    except ImportError as error:
        raise OsgymInfraError("the SDK is needed: pip install ./protocol ./sdk") from error
    try:
        return Client.from_fleet(path)
    except ConfigError as error:
        raise BadInput("--fleet", str(error)) from error
