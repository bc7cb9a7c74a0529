"""How much a host is asked for, as one number that a cloud's scaling can follow. Pure."""

from __future__ import annotations


def lease_pressure_percent(*, leased: int, waiting: int, admitted: int, draining: bool) -> float | None:
    """Return leases, held and waited for, per replica that may exist, in percent; over 100: clients wait.

    None where the number would say something false: a host that drains, or that admits no replica, gives no
    lease whatever is asked for, and its emptiness is no reason to remove another host.
    """
    if draining or (admitted <= 0 and not leased):
        return None
    return 100.0 * (leased + waiting) / max(1, admitted)
