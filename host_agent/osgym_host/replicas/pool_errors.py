"""Errors of the pool for requests that get no replica."""

from __future__ import annotations

from osgym_host.core.blocking import BlockingSetting
from osgym_host.core.plan import Blocked
from osgym_host.core.reasons import Reason
from osgym_host.errors import OsgymHostError
from osgym_protocol.host_api import Notice


class PoolExhausted(OsgymHostError):
    """No replica was free in time.

    Attributes:
        blocked: Cause that keeps the pool from growing.
        last_failure: Why the last attempt to make one failed, empty when none did.
        setting: Setting behind `blocked`; None without one.
    """

    def __init__(
        self, waited_s: float, blocked: Blocked, last_failure: str, setting: BlockingSetting | None = None
    ) -> None:
        by = blocked.value if setting is None else f"{blocked.value}: {setting}"
        why = f"; the last one could not be made: {last_failure}" if last_failure else ""
        super().__init__(f"No replica was free within {waited_s:.1f} s (blocked by {by}){why}")
        self.waited_s = waited_s
        self.blocked = blocked
        self.setting = setting
        self.last_failure = last_failure


class PoolStopping(OsgymHostError):
    """No replica is handed out, since the host agent stops."""

    def __init__(self, text: str = "The host agent is stopping.") -> None:
        super().__init__(text)


class PoolDraining(PoolStopping):
    """No replica is handed out while the host drains."""

    def __init__(self, notice: Notice) -> None:
        super().__init__("This host will be taken away; it takes no new episodes.")
        self.notice = notice


class ReplicaNotMade(OsgymHostError):
    """A replica for one lease (a child or an adopted one) failed before it was handed over."""

    def __init__(self, replica_id: str, reason: Reason, detail: str) -> None:
        super().__init__(f"replica {replica_id} could not be made ({reason.value}): {detail}")
        self.replica_id = replica_id
        self.reason = reason
        self.detail = detail
