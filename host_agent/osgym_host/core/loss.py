"""Whose loss it is when an episode ends early: one pure function of what the host itself has seen.

Nothing that runs in a desktop can write the evidence: neither what its programs say nor what the guest agent
says of them is in it. If it were the host's loss whenever a desktop breaks, a policy that sees that it will
fail could break its desktop, have the task tried again, and keep only the episodes in which it succeeds.
"""

from __future__ import annotations

from dataclasses import dataclass

from osgym_host.core.reasons import Reason, consequence
from osgym_protocol.codes import ErrorClass


@dataclass(frozen=True, slots=True)
class LossEvidence:
    """What the host knows of a loss.

    Attributes:
        reason: Why the episode ended, from exit states and counters of the host. What the host, its runtime
            or others on it caused has a reason of its own.
        policy_acted: An action of the policy, or a command of its client, was sent to the desktop.
    """

    reason: Reason
    policy_acted: bool


def whose_loss(evidence: LossEvidence) -> ErrorClass | None:
    """Return whose fault the end of an episode is; None for an end that was planned.

    A desktop that breaks by itself after the policy has begun to act is the policy's: nothing speaks for the
    host, and an honest policy that breaks its desktop has not done its task. Before that it is the host's.
    """
    meaning = consequence(evidence.reason)
    if meaning.caused_inside and evidence.policy_acted:
        return ErrorClass.POLICY
    return meaning.error_class


def may_be_of_a_full_disk(evidence: LossEvidence) -> bool:
    """Return whether a loss that looks like the policy's is the host's if the host's disk was full meanwhile.

    Programs that cannot write end in any way. A replica that wrote more than it may did that itself.
    """
    return whose_loss(evidence) is ErrorClass.POLICY and evidence.reason is not Reason.DISK
