"""The same ways in which a policy breaks its own desktop, in virtual machines: its 0, and no other try."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from tests.integration import test_policy_losses as losses
from tests.integration.test_policy_losses import (  # noqa: F401  (collected here, with the host below)
    client,
    test_a_check_of_windows_has_a_connection_when_all_others_are_used_up,
    test_a_policy_reaches_nothing_that_looks_after_its_desktop,
    test_a_policy_that_breaks_its_check_earns_0,
    test_a_policy_that_breaks_its_desktop_whenever_it_fails_gains_nothing,
    test_a_policy_that_spoils_its_result_earns_0,
    test_root_inside_cannot_make_it_the_hosts_loss,
)
from tests.support.host_process import MACHINES, HostProcess, running_host

from osgym_qemu.snapshots import Snapshot

pytestmark = [pytest.mark.desktop, pytest.mark.timeout(600)]

EMULATED_TERMINAL_MS = 9000


@pytest.fixture(scope="module")
def host(small_snapshot: Snapshot, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostProcess]:
    """A host with virtual machines, whose programs take their time."""
    folder = tmp_path_factory.mktemp("host")
    name = f"losses-vm-{os.getpid()}"
    with pytest.MonkeyPatch.context() as patch:
        if small_snapshot.manifest.shape["accel"] == "tcg":
            patch.setattr(losses, "TERMINAL_MS", EMULATED_TERMINAL_MS)
        with running_host(name, log_dir=folder, warm=1, max_replicas=2, settings=MACHINES) as running:
            yield running
