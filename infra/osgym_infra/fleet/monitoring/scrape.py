"""Targets and scrape configuration (Prometheus 2.42, Debian 12's, documentation "Configuration"). Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from osgym_infra.fleet.managed import ManagedFleet, ManagedHost

CONFIG, RULES, DASHBOARD = "prometheus.yml", "rules.yml", "dashboard.json"
CA, TOKEN = "ca.pem", "token"
JOB = "osgym"
MOST_TIMEOUT_S = 10.0
MOST_BODY = "4MB"
MOST_SAMPLES = 5000
"""An agent exports some 300 series: a host that sends thousands is not well, and must not fill the disk."""
MOST_LABEL_CHARS = 200


@dataclass(frozen=True, slots=True)
class ScrapeOptions:
    """Options of scraping.

    Attributes:
        every_s: Time between two scrapes of a host.
        alertmanagers: `HOST:PORT` of those that are told of alerts.
    """

    every_s: float = 15.0
    alertmanagers: Sequence[str] = field(default=())


def duration(seconds: float) -> str:
    """Return a duration as Prometheus writes it."""
    if seconds >= 60 and seconds % 60 == 0:
        return f"{seconds / 60:.0f}m"
    return f"{seconds:.0f}s" if seconds == int(seconds) else f"{seconds * 1000:.0f}ms"


def jobs(fleet: ManagedFleet) -> dict[str, list[ManagedHost]]:
    """Return hosts by job: one job for each certificate name and protocol."""
    found: dict[tuple[str, str], list[ManagedHost]] = {}
    for host in fleet.hosts:
        found.setdefault((urlsplit(host.url).scheme, host.server_name), []).append(host)
    groups = sorted(found.items())
    return {JOB if n == 0 else f"{JOB}-{n + 1}": hosts for n, (_, hosts) in enumerate(groups)}


def targets_file(job: str) -> str:
    """Return the file of a job's targets, which Prometheus reloads when it changes."""
    return f"targets-{job}.json"


def targets(fleet: ManagedFleet, hosts: Sequence[ManagedHost]) -> list[dict[str, Any]]:
    """Return groups for Prometheus' file service discovery: one for each host, with its labels."""
    return [
        {
            "targets": [host.authority],
            "labels": {"fleet": fleet.stack, "host": host.id, "zone": host.zone, "provider": fleet.provider},
        }
        for host in hosts
    ]


def configuration(fleet: ManagedFleet, options: ScrapeOptions) -> dict[str, Any]:
    """Return prometheus.yml, with paths relative to itself."""
    every = duration(options.every_s)
    found: dict[str, Any] = {
        "global": {"scrape_interval": every, "evaluation_interval": every},
        "rule_files": [RULES],
        "scrape_configs": [_job(name, fleet, hosts, options) for name, hosts in jobs(fleet).items()],
    }
    if options.alertmanagers:
        found["alerting"] = {
            "alertmanagers": [{"static_configs": [{"targets": list(options.alertmanagers)}]}]
        }
    return found


def _job(
    name: str, fleet: ManagedFleet, hosts: Sequence[ManagedHost], options: ScrapeOptions
) -> Mapping[str, Any]:
    first = hosts[0]
    scheme = urlsplit(first.url).scheme
    job: dict[str, Any] = {
        "job_name": name,
        "scheme": scheme,
        "metrics_path": "/metrics",
        "scrape_timeout": duration(min(MOST_TIMEOUT_S, options.every_s)),
        "follow_redirects": False,
        "body_size_limit": MOST_BODY,
        "sample_limit": MOST_SAMPLES,
        "label_value_length_limit": MOST_LABEL_CHARS,
        "file_sd_configs": [{"files": [targets_file(name)]}],
    }
    if fleet.token_source:
        job["authorization"] = {"type": "Bearer", "credentials_file": TOKEN}
    if scheme == "https":
        job["tls_config"] = {
            **({"ca_file": CA} if fleet.ca else {}),
            **({"server_name": first.server_name} if first.server_name else {}),
        }
    return job
