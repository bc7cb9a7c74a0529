"""Alert rules over metrics of host agents (`osgym_host.api.metrics`, `osgym_host.episodes`). Pure."""

from __future__ import annotations

from typing import Any

from osgym_infra.fleet.monitoring.scrape import ScrapeOptions, duration

FAULTS = (
    "guest_dead", "guest_hung", "guest_slow", "guest_protocol", "guest_failed", "out_of_memory",
    "disk", "disk_full", "io_error", "guest_panic", "guest_rebooted", "emulator_failed",
    "host_out_of_memory",
    "killed", "stopped", "runtime_lost", "internal",
)  # fmt: skip
"""Reasons by which a replica that was good broke in use (`osgym_host.core.reasons`, `replace_and_count`)."""
NOT_MADE = ("create_failed", "boot_failed", "boot_timeout")
"""Reasons by which a replica could not be made (`back_off`)."""

MISSED_SCRAPES = 8
"""So many looks in a row fail before a host is down: two minutes at 15 s. An agent that is restarted is away
for some seconds."""
LOW_RAM = 0.05
LOW_DISK_MIB = 4096
RESERVE_DISK_MIB = 1024
"""Below it no replica starts (`disk_reserve_mib` of host_agent/SETTINGS.md)."""
MOST_FAULTS = 0.05
LEAST_FAULTS = 5


def rules(options: ScrapeOptions) -> dict[str, Any]:
    """Return rules.yml."""
    alerts = [*_hosts(options), *_room(), *_disk(), *_replicas(), *_notices()]
    return {"groups": [{"name": "osgym", "rules": alerts}]}


def _hosts(options: ScrapeOptions) -> list[dict[str, Any]]:
    missed = duration(MISSED_SCRAPES * options.every_s)
    return [
        _alert(
            "OsgymHostDown", 'up{job=~"osgym.*"} == 0', missed, "critical",
            "host {{ $labels.host }} does not answer",
            "Its episodes are lost; clients use other hosts. `osgym fleet status --host {{ $labels.host }}` "
            "says why; `osgym fleet logs` shows its agent. If the host does not come "
            "back: `pulumi up --refresh`.",
        ),
        _alert(
            "OsgymFleetDown", 'sum by (fleet) (up{job=~"osgym.*"}) == 0', missed, "critical",
            "no host of fleet {{ $labels.fleet }} answers",
            "Check that this Prometheus reaches the hosts' network, and that token and ca.pem are those "
            "of the last export.",
        ),
    ]  # fmt: skip


def _room() -> list[dict[str, Any]]:
    return [
        _alert(
            "OsgymClientsWait", "sum by (fleet) (osgym_waiting_clients) > 0", "10m", "warning",
            "{{ $value }} clients of fleet {{ $labels.fleet }} wait for a replica",
            "Add hosts (osgym:replicas, osgym:max_hosts), or run fewer clients.",
        ),
        _alert(
            "OsgymPoolBlocked",
            'osgym_pool_blocked{by=~"ram|cpu|disk|backoff"} == 1 '
            "and on (fleet, host) osgym_waiting_clients > 0",
            "10m", "warning", "host {{ $labels.host }} makes no replicas because of {{ $labels.by }}",
            "Clients wait there. `osgym fleet status` shows memory and disk; `backoff`: replicas cannot be "
            "made, `osgym fleet logs` says why.",
        ),
        _alert(
            "OsgymMemoryLow", f"osgym_ram_available_mib / osgym_ram_total_mib < {LOW_RAM}", "5m", "warning",
            "host {{ $labels.host }} has {{ $value | humanizePercentage }} of its memory left",
            "Lower osgym:max_replicas_per_host, or take a larger profile.",
        ),
    ]  # fmt: skip


def _disk() -> list[dict[str, Any]]:
    where = "Trajectories and checkpoints are in /var/lib/osgym."
    return [
        _alert(
            "OsgymDiskLow", f"osgym_disk_free_mib < {LOW_DISK_MIB}", "5m", "warning",
            "host {{ $labels.host }} has {{ $value }} MiB of disk left",
            f"Below {RESERVE_DISK_MIB} MiB no replica starts. {where}",
        ),
        _alert(
            "OsgymDiskFills",
            f"predict_linear(osgym_disk_free_mib[1h], 4 * 3600) < {RESERVE_DISK_MIB}", "30m", "warning",
            "the disk of host {{ $labels.host }} is full within four hours", where,
        ),
    ]  # fmt: skip


def _replicas() -> list[dict[str, Any]]:
    faults = f'increase(osgym_replicas_retired_total{{reason=~"{"|".join(FAULTS)}"}}[15m])'
    not_made = f'increase(osgym_replicas_retired_total{{reason=~"{"|".join(NOT_MADE)}"}}[15m])'
    of = "sum by (fleet, host)"
    return [
        _alert(
            "OsgymReplicaFaults",
            f"{of} ({faults}) >= {LEAST_FAULTS} and {of} ({faults}) > "
            f"{MOST_FAULTS} * {of} (increase(osgym_episodes_opened_total[15m]))",
            "0s", "warning",
            "{{ $value | humanize }} replicas broke in use on host {{ $labels.host }} in 15 minutes",
            "Their reasons: osgym_replicas_retired_total of that host; `osgym fleet logs` says more.",
        ),
        _alert(
            "OsgymReplicasNotMade", f"{of} ({not_made}) >= 3", "0s", "warning",
            "{{ $value | humanize }} replicas could not be made on host {{ $labels.host }} in 15 minutes",
            "`osgym fleet doctor --host {{ $labels.host }}` tries what a replica needs.",
        ),
        _alert(
            "OsgymRecoveryFails", 'osgym_pool_blocked{by=~"backoff|probing"} == 1', "10m", "critical",
            "host {{ $labels.host }} has not managed to make a replica for ten minutes",
            "Drain it (`osgym fleet drain --host {{ $labels.host }}`) and look at `osgym fleet logs`.",
        ),
    ]  # fmt: skip


def _notices() -> list[dict[str, Any]]:
    return [
        _alert(
            "OsgymHostGoing", 'osgym_notice{kind!="operator"} == 1', "0s", "info",
            "host {{ $labels.host }} will be reclaimed ({{ $labels.kind }})",
            "It drains by itself. A group replaces it; without a group run `pulumi up --refresh`.",
        ),
        _alert(
            "OsgymNoticesFail", "osgym_notices_failing == 1", "10m", "warning",
            "host {{ $labels.host }} cannot read notices of its cloud",
            "It would be reclaimed without a drain. `osgym fleet logs --unit osgym-notices --host "
            "{{ $labels.host }}`.",
        ),
    ]  # fmt: skip


def _alert(name: str, expr: str, hold: str, severity: str, summary: str, description: str) -> dict[str, Any]:
    return {
        "alert": name,
        "expr": expr,
        "for": hold,
        "labels": {"severity": severity},
        "annotations": {"summary": summary, "description": description},
    }
