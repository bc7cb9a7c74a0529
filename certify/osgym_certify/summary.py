"""Figures of many certificates: verdicts, ends that held, causes with the tasks that have them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from osgym_certify.certificate import Certificate, Gui, Kind, Trial, Verdict, held
from osgym_cli.evals.statistics import wilson


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of one certificate, or of many.

    Attributes:
        mutations: Number of mutations that earned less than 1, and of all that were scored.
        equivalents: Number of equivalents that earned 1, and of all that were scored.
        ways: The same of the author's own ways: untouched, right and wrong ones.
        flakes: Number of golden ends that did not earn 1, and of all; `flake_rate` is its 95 % interval.
        allowed: Number of ends that the author allows to earn another reward.
    """

    mutations: tuple[int, int]
    equivalents: tuple[int, int]
    ways: tuple[int, int]
    flakes: tuple[int, int]
    allowed: int
    desktops: int
    duration_s: float

    @property
    def flake_rate(self) -> tuple[float, float]:
        failed, tried = self.flakes
        return wilson(failed / tried, tried) if tried else (0.0, 1.0)


def figures(certificates: Sequence[Certificate]) -> Figures:
    """Return the sums of these certificates."""
    trials: list[Trial] = [trial for one in certificates for trial in one.trials]
    golden = [trial for trial in trials if trial.kind is Kind.GOLDEN]
    return Figures(
        mutations=held(trial for trial in trials if trial.kind is Kind.MUTATION),
        equivalents=held(trial for trial in trials if trial.kind is Kind.EQUIVALENT),
        ways=held(trial for trial in trials if trial.kind in (Kind.UNTOUCHED, Kind.WRONG, Kind.RIGHT)),
        flakes=(sum(trial.is_wrong for trial in golden), len(golden)),
        allowed=sum(trial.allowed is not None for trial in trials),
        desktops=sum(one.desktops for one in certificates),
        duration_s=sum(one.duration_s for one in certificates),
    )


def verdicts(certificates: Sequence[Certificate]) -> dict[Verdict, int]:
    """Return the number of certificates of each verdict, also of those that none has."""
    return {verdict: sum(one.verdict is verdict for one in certificates) for verdict in Verdict}


def causes(certificates: Sequence[Certificate]) -> list[tuple[str, list[str]]]:
    """Return each cause with the names of the tasks that have it, the most frequent first."""
    found: dict[str, list[str]] = {}
    for one in certificates:
        for cause in one.causes():
            found.setdefault(cause, []).append(one.task)
    return sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))


def gui_free(certificates: Sequence[Certificate]) -> list[str]:
    """Return the names of the tasks whose check does not see whether an application was used."""
    return [one.task for one in certificates if one.gui is Gui.FREE]
