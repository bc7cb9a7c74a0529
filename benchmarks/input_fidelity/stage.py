"""Environment of a cell: a desktop with one program on it, actions, and expected events."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.input_fidelity.witnessing import Event, Patience, Witness, until
from osgym_sdk import Episode, InvalidAction, PathNotFound

Point = tuple[int, int]
Act = Mapping[str, Any]


class Refused(Exception):
    """The desktop refused an action; the message has the reason."""


class Wrong(Exception):
    """A program received something else than the actions said."""

    def __init__(self, what: str, expected: Any, received: Any) -> None:
        super().__init__(f"{what}: {received!r}, not {expected!r}")
        self.what = what
        self.expected = expected
        self.received = received


class Stage:
    """One run of one cell.

    Attributes:
        partner: Another program beside it, of cells between two programs.
        counts: Names that the toolkit has for the three presses of a triple click.
        payload: Text that the toolkit's target "source" gives away.
    """

    def __init__(
        self, episode: Episode, witness: Witness, patience: Patience, *, partner: Witness | None = None
    ) -> None:
        self.episode = episode
        self.witness = witness
        self.partner = partner
        self.counts = witness.toolkit.counts
        self.payload = f"payload-{witness.toolkit.name}"
        self._patience = patience

    def step(self, *actions: Act | str, **options: Any) -> None:
        """Do actions in one step, with the episode's way of waiting for the screen.

        Raises:
            Refused: An action was not done.
        """
        try:
            obs = self.episode.step(list(actions), observe="none", **options)
        except InvalidAction as error:
            raise Refused(str(error)) from error
        if obs.failed_index is not None:
            raise Refused(f"action {obs.failed_index}: {obs.results[obs.failed_index]}")

    def say(self, output: Any, grammar: str) -> None:
        """Do a model's output in its grammar."""
        try:
            self.episode.step(output, grammar=grammar, coordinates="pixel", observe="none")
        except InvalidAction as error:
            raise Refused(str(error)) from error

    def at(self, target: str, x: float = 0.5, y: float = 0.5, *, of: Witness | None = None) -> Point:
        """Return a point of a target on the screen; x and y go from 0 to 1 through it."""
        left, top, width, height = (of or self.witness).targets[target]
        return left + int(width * x), top + int(height * y)

    def click(self, target: str, **fields: Any) -> Act:
        x, y = self.at(target)
        return {"op": "click", "x": x, "y": y, **fields}

    def run(self, script: str) -> None:
        """Run a shell script in the desktop.

        Raises:
            RuntimeError: It failed.
        """
        done = self.episode.execute(script)
        if done.returncode:
            raise RuntimeError(f"{script!r} ended with {done.returncode}: {done.output}")

    def expect(self, what: str, expected: Any, received: Callable[[list[Event]], Any]) -> None:
        """Wait until the program has received what the actions said, and make sure that no more comes.

        Args:
            received: Function that finds the value in the witness's events.

        Raises:
            Wrong: Something else came, or nothing.
        """
        until(lambda: received(self.witness.events()) == expected, self._patience.arrival_s)
        before, since = self.witness.events(), time.monotonic()

        def quiet() -> bool:
            nonlocal before, since
            now = self.witness.events()
            if now != before:
                before, since = now, time.monotonic()
            return time.monotonic() - since >= self._patience.quiet_s

        until(quiet, self._patience.arrival_s)
        found = received(self.witness.events())
        if found != expected:
            raise Wrong(what, expected, found)

    def expect_text(self, target: str, value: str) -> None:
        self.expect(f"text of {target}", value, lambda events: text_of(events, target))

    def expect_file(self, path: str, content: str) -> None:
        def read(_: object) -> str | None:
            try:
                return self.episode.read_file(path).decode(errors="replace")
            except PathNotFound:
                return None

        self.expect(path, content, read)


def text_of(events: Iterable[Event], target: str) -> str | None:
    """Return the last content of a text target; None when nothing ever came."""
    values = [event["value"] for event in events if event["event"] == "text" and event["target"] == target]
    return values[-1] if values else None


def named(events: Iterable[Event], event: str, *fields: str) -> list[Any]:
    """Return all events of a name: their fields as lists, or a bare value where one field is asked for."""
    found = [one for one in events if one["event"] == event]
    if len(fields) == 1:
        return [one.get(fields[0]) for one in found]
    return [[one.get(field) for field in fields] for one in found]


@dataclass(frozen=True, slots=True)
class Cell:
    """One column of the matrix.

    Attributes:
        name: Short name without blanks.
        about: Description for a reader of the table.
        needs: Targets that a toolkit must have for it.
        play: Function that acts and expects the events.
        partner: Toolkit of another program that is started beside it.
        quick: True for a member of the fast subset that tests run.
        changes_desktop: True where a layout, files or windows stay after the program's end.
    """

    name: str
    about: str
    needs: tuple[str, ...]
    play: Callable[[Stage], None]
    partner: str = ""
    quick: bool = False
    changes_desktop: bool = False
