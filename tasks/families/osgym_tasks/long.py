"""Long tasks: parts over several programs and local services, each of them a checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from osgym_tasks.family import Draft, Steps, Ways
from osgym_tasks.pieces import DONE, Kept, checkpoints, execute, key

Check = tuple[str, Mapping[str, Any], Mapping[str, Any] | Kept]
Legs = Sequence[tuple[str, Steps]]
"""Steps with the title of the window in which they are done."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a long task.

    Attributes:
        name: Name that is used in the names of ways.
        weight: Share of the reward, relative to other parts.
        check: Check of its end, which does not hold before the policy acts.
        legs: Steps that read and type, without an effect that the check sees.
        commits: Steps after these that have the effect, such as saving a file.
    """

    name: str
    weight: int
    check: Check
    legs: Legs
    commits: Legs


def fronted(windows: Sequence[str]) -> list[dict[str, Any]]:
    """Return the end of a set-up: the windows with these titles are used one by one, the first one last."""
    return [execute("bash", "-c", _FRONT, "front", *reversed(windows))]


_FRONT = """
for title in "$@"; do
  for round in $(seq 40); do
    wmctrl -a "$title"
    sleep 0.25
    xdotool getactivewindow getwindowname | grep -qF -- "$title" && break
  done
done
"""
"""Script that brings windows to the front in turn, and waits until each is active."""


def to_window(times: int) -> list[dict[str, Any]]:
    """Return a step that goes to the window which was used this many windows ago."""
    hold, release = {"op": "key_down", "key": "alt"}, {"op": "key_up", "key": "alt"}
    wait = {"op": "wait", "duration_ms": 150}
    return [hold, *([key("tab"), wait] * times), release, {"op": "wait", "duration_ms": 700}]


def played(windows: Sequence[str], legs: Iterable[tuple[str, Steps]]) -> Steps:
    """Return the steps of legs, with a change of the window between them where the next one needs it.

    Args:
        windows: Titles in the order of their last use; the first is active.
    """
    order = list(windows)
    steps: Steps = []
    for window, some in legs:
        at = order.index(window)
        steps += [to_window(at)] if at else []
        order.insert(0, order.pop(at))
        steps += some
    return steps


@dataclass(frozen=True, slots=True)
class Plan:
    """A long task.

    Attributes:
        windows: Titles of the windows at the beginning, the active one first.
        parts: All parts in the order of the oracle.
        wrong: Ways that miss one part, by name: what is done in place of the part of the same name.
        broken: Ways that violate a condition, by name: legs after all parts.
        conditions: Checks that must hold besides.
    """

    windows: Sequence[str]
    parts: Sequence[Part]
    wrong: Mapping[str, Part]
    broken: Mapping[str, Legs]
    conditions: Sequence[Check] = ()

    def draft(
        self,
        wordings: Sequence[str],
        named: Mapping[str, str],
        config: list[dict[str, Any]],
        changes: Sequence[str],
    ) -> Draft:
        """Make the draft; the arguments are those of `Draft`."""
        weighed = [(part.weight, part.check) for part in self.parts]
        return Draft(
            wordings,
            named,
            [*config, *fronted(self.windows)],
            checkpoints(weighed, self.conditions),
            self._ways(),
            changes=changes,
        )

    def _ways(self) -> Ways:
        first, *others = self.parts
        some = {f"without {first.name}": others}
        some |= {
            name: [wrong if part.name == wrong.name else part for part in self.parts]
            for name, wrong in self.wrong.items()
        }
        done = [*chain.from_iterable(part.legs for part in self.parts)]
        return Ways(
            self._steps(self.parts),
            {
                "nothing saved or sent": [*played(self.windows, done), DONE],
                **{name: self._steps(self.parts, legs) for name, legs in self.broken.items()},
            },
            part={name: (self._steps(parts), self._reward(parts)) for name, parts in some.items()},
        )

    def _steps(self, parts: Sequence[Part], more: Legs = ()) -> Steps:
        legs = [*chain.from_iterable([*part.legs, *part.commits] for part in parts), *more]
        return [*played(self.windows, legs), DONE]

    def _reward(self, parts: Sequence[Part]) -> float:
        held = sum(part.weight for part in parts if part in self.parts)
        return held / sum(part.weight for part in self.parts)
