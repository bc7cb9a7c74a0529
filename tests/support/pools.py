"""A started pool over fake replicas, and the check that nothing is left of it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from osgym_host.core.admission import Budget
from osgym_host.core.backoff import BackoffPolicy
from osgym_host.core.disk_pressure import DiskRoom
from osgym_host.core.plan import PoolSpec
from osgym_host.core.reasons import Reason
from osgym_host.replicas.events import EventLog
from osgym_host.replicas.journal import ReplicaJournal
from osgym_host.replicas.manager import Deadlines
from osgym_host.replicas.pool import Pool
from osgym_host.replicas.replica_set import ReplicaSet
from osgym_host.replicas.saved_desktops import SavedDesktops
from osgym_host.replicas.usage_monitor import UsageOptions
from osgym_host.replicas.warming import Warming
from osgym_host.runtimes import base
from tests.support.fake_runtime import FakeImage, FakeRuntime

QUICK = BackoffPolicy(base_s=0.02, max_s=0.1, open_after=3)


def nobody(reason: Reason, detail: str) -> None:
    """A holder who does not care."""


@contextlib.asynccontextmanager
async def pool_of(tmp_path: Path, **more: Any) -> AsyncIterator[tuple[Pool, FakeRuntime]]:
    """A started pool; asserts that nothing is left of it."""
    make_runtime: type[FakeRuntime] = more.pop("runtime", FakeRuntime)
    runtime = make_runtime(tmp_path / "r")
    make_warming: Callable[[SavedDesktops], Warming] = more.pop("warming", Warming)
    saved = SavedDesktops(runtime)
    journal = ReplicaJournal(tmp_path / "journal.jsonl")
    journal.open()
    pool = Pool(
        replicas=ReplicaSet(
            saved,
            journal,
            Deadlines(create_s=more.pop("create_s", 2), boot_s=more.pop("boot_s", 2), destroy_s=2),
            lambda replica_id, generation, _: base.ReplicaSpec(replica_id, generation, FakeImage()),
            {FakeImage().digest: make_warming(saved)},
        ),
        events=EventLog(),
        spec=PoolSpec(more.pop("warm", 1), more.pop("max_starting", 4), QUICK),
        budget=Budget(more.pop("max_replicas", 8), 0, 64, 0.0, 0, 1),
        probe=lambda: (10_000.0, 4, DiskRoom(runtime.disk_free_mib)),
        usage_options=UsageOptions(
            more.pop("interval_s", 0.02), more.pop("disk_cap_mib", None), more.pop("disk_reserve_mib", 0)
        ),
        pulse_options=more.pop("pulse_options", None),
        rest_terms=more.pop("rest_terms", None),
    )
    pool.start()
    try:
        yield pool, runtime
    finally:
        assert await pool.close(5)
        journal.close()
    assert runtime.destroyed >= runtime.made
    assert not runtime.alive
    assert not list((tmp_path / "r").glob("*"))
    reopened = ReplicaJournal(tmp_path / "journal.jsonl")
    reopened.open()
    assert reopened.leftovers == ()
    reopened.close()
