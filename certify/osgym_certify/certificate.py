"""Certificates as data: end states, what each must earn and earned, and the verdict that follows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from osgym_certify.sense import Code, Finding, Severity

EDITION = 2
"""Number that is raised when end states or verdicts change, so that older certificates are made again."""


class Kind(StrEnum):
    """Reason why an end state is tried."""

    UNTOUCHED = "untouched"
    GOLDEN = "golden"
    WRONG = "wrong way"
    RIGHT = "right way"
    MUTATION = "mutation"
    EQUIVALENT = "equivalent"
    SHELL = "shell"
    """The golden files, written by a shell without any application. It may earn anything."""


class Verdict(StrEnum):
    CERTIFIED = "certified"
    FAULTY = "faulty"
    UNPROVEN = "unproven"
    """The task has no oracle, or its oracle did not earn 1, so that nothing could be tried."""
    FAILED = "failed"
    """The infrastructure failed; the same command tries again."""


class Gui(StrEnum):
    """Whether the check notices that no application was used."""

    REQUIRED = "required"
    FREE = "free"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Trial:
    """An end state that was tried.

    Attributes:
        end: What was done, the same for every task.
        about: Path that it was done to.
        must: Reward that it must earn: 0 or 1; None if it may earn anything.
        earned: Reward that it earned; None if it could not be scored, which `note` explains.
        note: Explanation of the check, or of a failure.
        allowed: Reason of the task's author why it may earn another reward.
    """

    kind: Kind
    end: str
    about: str
    must: float | None
    earned: float | None
    note: str = ""
    allowed: str | None = None

    @property
    def is_wrong(self) -> bool:
        """Whether the reward is wrong, and the task's author does not allow that."""
        if self.must is None or self.earned is None or self.allowed is not None:
            return False
        return self.earned < 1 if self.must == 1 else self.earned >= 1


@dataclass(frozen=True, slots=True)
class Certificate:
    """All that was tried with one task.

    Attributes:
        task: Name of the task; `digest` identifies its content.
        image: Digest of the golden image of the desktops.
        began: Time of the beginning, in ISO 8601; `duration_s` from then to the end.
        desktops: Number of desktops that were used.
        failure: Failure of the infrastructure, or why nothing could be tried.
        signature: Signature of `signed_text`, in base64.
    """

    task: str
    digest: str
    instruction: str
    image: str
    version: str
    seed: int
    began: str
    duration_s: float
    desktops: int
    gui: Gui
    trials: tuple[Trial, ...] = ()
    findings: tuple[Finding, ...] = ()
    failure: str = ""
    edition: int = EDITION
    signature: str = field(default="", compare=False)

    @property
    def verdict(self) -> Verdict:
        golden = self.of(Kind.GOLDEN)
        proven = any(not trial.is_wrong for trial in golden)
        # Without a golden end, ways that should reach it say nothing about the check.
        telling = self.trials if proven else self.of(Kind.UNTOUCHED, Kind.WRONG)
        if any(trial.is_wrong for trial in telling) or any(
            finding.severity is Severity.WRONG for finding in self.findings
        ):
            return Verdict.FAULTY
        if not proven:
            return Verdict.FAILED if self.failure else Verdict.UNPROVEN
        if self.failure or any(trial.earned is None for trial in self.trials):
            return Verdict.FAILED
        return Verdict.CERTIFIED

    def of(self, *kinds: Kind) -> list[Trial]:
        """Return the trials of these kinds."""
        return [trial for trial in self.trials if trial.kind in kinds]

    @property
    def flakes(self) -> tuple[int, int]:
        """Number of golden ends that did not earn 1, and of all."""
        golden = self.of(Kind.GOLDEN)
        return sum(trial.is_wrong for trial in golden), len(golden)

    def causes(self) -> list[str]:
        """Return what is wrong, each cause once: ends by name, findings by code."""
        ends = [
            f"{trial.kind}: {trial.end} earned {trial.earned:g}" for trial in self.trials if trial.is_wrong
        ]
        codes = [finding.code for finding in self.findings if finding.severity is Severity.WRONG]
        return list(dict.fromkeys([*ends, *codes]))

    def as_json(self) -> dict[str, Any]:
        """Return the line of the record, with the verdict, which is computed again when it is read."""
        return {**asdict(self), "verdict": self.verdict.value}

    def signed_text(self) -> bytes:
        """Return the bytes that a signature is of: the line without the signature."""
        line = {name: value for name, value in self.as_json().items() if name != "signature"}
        return json.dumps(line, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def certificate_of(line: Mapping[str, Any]) -> Certificate:
    """Read a line of a record.

    Raises:
        ValueError, TypeError, KeyError: It has another form.
    """
    fields = {name: value for name, value in line.items() if name != "verdict"}
    trials = tuple(Trial(**{**trial, "kind": Kind(trial["kind"])}) for trial in fields.pop("trials"))
    findings = tuple(
        Finding(Code(finding["code"]), Severity(finding["severity"]), finding["message"])
        for finding in fields.pop("findings")
    )
    return Certificate(**{**fields, "gui": Gui(fields["gui"])}, trials=trials, findings=findings)


def held(trials: Iterable[Trial]) -> tuple[int, int]:
    """Number of trials that earned what they must, and number of those that were scored and must earn one."""
    scored: Sequence[Trial] = [one for one in trials if one.must is not None and one.earned is not None]
    return sum(not trial.is_wrong for trial in scored), len(scored)
