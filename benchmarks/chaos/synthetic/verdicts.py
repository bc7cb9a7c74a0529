"""Outcomes of trajectories over stand-ins, compared with the expected ones. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.chaos.synthetic.faults import Class, Expected

_CLASS = {Class.POLICY: "policy", Class.INFRA: "infra", Class.TASK: "task", Class.NOBODY: ""}
"""Names of the classes in the host agent's answers."""


@dataclass(frozen=True, slots=True)
class SeenEnd:
    """End of an attempt by the host agent's account: class and cause, both empty for a planned end.

    Attributes:
        forgotten: The host agent does not know the episode any more.
    """

    error_class: str = ""
    cause: str = ""
    forgotten: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of one trajectory.

    Attributes:
        attempts: Number of episodes that the SDK asked for.
        ends: Ends of those that came as far as a first frame, in their order.
        failure_class: Class of the failure, None where there is a reward.
        by_policy: The reward is the 0 of a desktop that its policy broke.
        reason: Reason for which the last attempt has no reward, or a 0 by the policy's doing; empty for a
            score.
        note: Explanation that the client got.
    """

    number: int
    row: str
    attempts: int
    ends: tuple[SeenEnd, ...]
    reward: float | None
    failure_class: str | None
    by_policy: bool
    valid: bool
    reason: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """An outcome beside the expected one."""

    outcome: Outcome
    expected: Expected
    wrong: tuple[str, ...]

    @property
    def reasons(self) -> list[tuple[str, str]]:
        """Return reason and class of each attempt by the host agent's account."""
        named = [(end.cause, end.error_class or Class.NOBODY.value) for end in self.outcome.ends if end.cause]
        last = self.expected.ends[-1].error_class
        if not self.outcome.ends or not self.outcome.ends[-1].cause:
            named.append((self.outcome.reason or "scored", last.value))
        return named


def judge(outcome: Outcome, wanted: Expected) -> Verdict:
    last = wanted.ends[-1].error_class
    wrong = []
    if outcome.attempts != len(wanted.ends):
        wrong.append(f"{outcome.attempts} attempts, not {len(wanted.ends)}")
    if outcome.reward != wanted.reward:
        wrong.append(f"reward {outcome.reward}, not {wanted.reward}")
    failure_class = None if wanted.reward is not None else last.value
    if outcome.failure_class != failure_class:
        wrong.append(f"a failure of the class {outcome.failure_class}, not {failure_class}")
    if outcome.by_policy is not (last is Class.POLICY):
        wrong.append("the policy's loss" if outcome.by_policy else "not the policy's loss")
    if outcome.valid is not (wanted.reward is not None):
        wrong.append("valid for training" if outcome.valid else "not valid for training")
    unseen = max(0, outcome.attempts - len(outcome.ends))
    for seen, end in zip(outcome.ends, wanted.ends[unseen:], strict=False):
        if seen.forgotten:
            wrong.append("the host agent has forgotten the episode")
        elif end.cause and (seen.error_class, seen.cause) != (_CLASS[end.error_class], end.cause):
            said = f"{seen.error_class or 'no class'} ({seen.cause or 'no cause'})"
            wrong.append(f"the host agent says {said}, not {end.error_class.value} ({end.cause})")
        elif not end.cause and seen.error_class:
            wrong.append(
                f"the host agent says {seen.error_class} ({seen.cause}) of an episode that it scored"
            )
    return Verdict(outcome, wanted, tuple(wrong))


def table_of_faults(verdicts: Iterable[Verdict]) -> list[str]:
    """Return a row for each kind of trajectory, as Markdown: what met it, whose loss it is, how many."""
    counts: Counter[tuple[str, str]] = Counter()
    wrong: Counter[tuple[str, str]] = Counter()
    for verdict in verdicts:
        chain = ", ".join(end.error_class.value for end in verdict.expected.ends)
        key = (verdict.outcome.row, chain)
        counts[key] += 1
        wrong[key] += bool(verdict.wrong)
    lines = ["| what breaks, and when | class of each attempt | episodes | wrong |", "|---|---|---|---|"]
    for (row, chain), count in sorted(counts.items()):
        lines.append(f"| {row} | {chain} | {count} | {wrong[row, chain]} |")
    return lines


def table_of_reasons(verdicts: Iterable[Verdict]) -> list[str]:
    """Return a row for each reason and class that the host agent gave, as Markdown."""
    counts = Counter(reason for verdict in verdicts for reason in verdict.reasons)
    lines = ["| reason | class | attempts |", "|---|---|---|"]
    return lines + [f"| {cause} | {of} | {count} |" for (cause, of), count in sorted(counts.items())]


def rare(verdicts: Sequence[Verdict], least: int) -> list[str]:
    """Return the kinds of trajectories of which there were fewer than `least`."""
    counts = Counter(verdict.outcome.row for verdict in verdicts)
    return [f"{row}: {count}" for row, count in sorted(counts.items()) if count < least]
