"""Attribution of losses: every reason, with and without an action of the policy."""

from __future__ import annotations

import pytest

from osgym_host.core.loss import LossEvidence, whose_loss
from osgym_host.core.reasons import Reason
from osgym_protocol.codes import ErrorClass

NOBODYS = {Reason.CLOSED, Reason.SUSPENDED, Reason.LEASE_EXPIRED, Reason.MADE_WAY, Reason.CLIENT_GONE}
TASKS = {Reason.SETUP_FAILED, Reason.TASK_INVALID, Reason.TASK_UNSUPPORTED}
HOSTS = {
    Reason.SURPLUS,
    Reason.SHUTDOWN,
    Reason.HOST_RESTARTED,
    Reason.HOST_GOING,
    Reason.CREATE_FAILED,
    Reason.BOOT_FAILED,
    Reason.BOOT_TIMEOUT,
    Reason.HOST_OUT_OF_MEMORY,
    Reason.GUEST_SLOW,
    Reason.GUEST_FAILED,
    Reason.KILLED,
    Reason.STOPPED,
    Reason.RUNTIME_LOST,
    Reason.DISK_FULL,
    Reason.IO_ERROR,
    Reason.EMULATOR_FAILED,
    Reason.INTERNAL,
}
DESKTOPS = {
    Reason.GUEST_DEAD,
    Reason.GUEST_HUNG,
    Reason.GUEST_PROTOCOL,
    Reason.OUT_OF_MEMORY,
    Reason.DISK,
    Reason.GUEST_PANIC,
    Reason.GUEST_REBOOTED,
}


def test_every_reason_is_in_the_table_once() -> None:
    """Every reason is assigned to one party here, so a new one has to be added."""
    kinds = (NOBODYS, TASKS, HOSTS, DESKTOPS)
    assert set(Reason) == set().union(*kinds)
    assert sum(map(len, kinds)) == len(Reason)


@pytest.mark.parametrize("reason", list(Reason))
@pytest.mark.parametrize("policy_acted", [False, True], ids=["untouched", "acted"])
def test_whose_loss_it_is(reason: Reason, policy_acted: bool) -> None:
    """A desktop that breaks by itself is the policy's once it has acted, and the host's before."""
    wanted = None
    if reason in TASKS:
        wanted = ErrorClass.TASK
    elif reason in DESKTOPS and policy_acted:
        wanted = ErrorClass.POLICY
    elif reason in HOSTS | DESKTOPS:
        wanted = ErrorClass.INFRA
    assert whose_loss(LossEvidence(reason, policy_acted)) is wanted
