"""Attribution of an episode's early end to the policy or the host: pure functions of the host's own evidence.

The evidence comes from exit states and counters of the host, so that nothing inside a desktop can forge it.
If every broken desktop were the host's loss, a policy that foresees its failure could break the desktop, have
the task tried again, and keep only the episodes in which it succeeds.
"""

from __future__ import annotations

from dataclasses import dataclass

from osgym_host.core.reasons import Reason, consequence
from osgym_protocol.codes import ErrorClass


@dataclass(frozen=True, slots=True)
class LossEvidence:
    """The host's evidence about the early end of an episode.

    Attributes:
        reason: Reason of the end, from exit states and counters of the host. Causes that lie in the host, its
            runtime or other processes of the host have reasons of their own.
        policy_acted: True once an action of the policy, or a command of its client, was sent to the desktop.
    """

    reason: Reason
    policy_acted: bool


def whose_loss(evidence: LossEvidence) -> ErrorClass | None:
    """Return whose fault the end of an episode is; None for a planned end.

    A desktop that breaks without a cause in the host is the policy's loss once the policy has acted, since a
    policy that breaks its desktop has not done its task. Before the first action it is the host's loss.
    """
    meaning = consequence(evidence.reason)
    if meaning.caused_inside and evidence.policy_acted:
        return ErrorClass.POLICY
    return meaning.error_class


def may_be_of_a_full_disk(evidence: LossEvidence) -> bool:
    """Return whether a full disk of the host could have caused a loss that is attributed to the policy.

    Programs that cannot write may fail in any way. The one exception is a replica that exceeded its own disk
    limit (`Reason.DISK`): that is the policy's loss even on a full disk.
    """
    return whose_loss(evidence) is ErrorClass.POLICY and evidence.reason is not Reason.DISK
