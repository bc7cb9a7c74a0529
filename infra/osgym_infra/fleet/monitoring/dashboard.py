"""Grafana dashboard over the same metrics (Grafana's "Dashboard JSON model", schema version 39). Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SCHEMA = 39
UID = "osgym-fleet"
HEIGHT, WIDTH = 8, 8
"""Of a panel, of Grafana's 24 columns."""
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
OF = '{fleet=~"$fleet", host=~"$host"}'


@dataclass(frozen=True, slots=True)
class Panel:
    """Panel of the dashboard.

    Attributes:
        exprs: Legend by query; a legend may name labels as `{{host}}`.
    """

    title: str
    exprs: Mapping[str, str]
    unit: str = "short"
    kind: str = "timeseries"


def _quantile(share: float, metric: str, by: str = "") -> str:
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({share}, sum by ({labels}) (rate({metric}_bucket{OF}[$__rate_interval])))"


def _rate(metric: str, by: str = "") -> str:
    return f"sum{f' by ({by})' if by else ''} (rate({metric}{OF}[$__rate_interval]))"


PANELS: Sequence[Panel] = (
    Panel("Hosts that answer", {"up": f"sum(up{OF})", "of": f"count(up{OF})"}, kind="stat"),
    Panel("Replicas leased", {"leased": 'sum(osgym_replicas{fleet=~"$fleet", host=~"$host", state="leased"})',
                              "of": f"sum(osgym_max_replicas{OF})"}, kind="stat"),
    Panel("Clients that wait", {"waiting": f"sum(osgym_waiting_clients{OF})"}, kind="stat"),
    Panel("Replicas by state", {"{{state}}": f"sum by (state) (osgym_replicas{OF})"}),
    Panel("Clients that wait, by host", {"{{host}}": f"sum by (host) (osgym_waiting_clients{OF})"}),
    Panel("Steps", {"steps": _rate("osgym_steps_total")}, "ops"),
    Panel("Step in the guest", {"p50": _quantile(0.5, "osgym_step_guest_seconds"),
                                "p95": _quantile(0.95, "osgym_step_guest_seconds")}, "s"),
    Panel("Step in the host agent", {"p50": _quantile(0.5, "osgym_step_host_seconds"),
                                     "p95": _quantile(0.95, "osgym_step_host_seconds")}, "s"),
    Panel("To open an episode, p95 by phase",
          {"{{phase}}": _quantile(0.95, "osgym_episode_open_seconds", "phase")}, "s"),
    Panel("Episodes opened", {"opened": _rate("osgym_episodes_opened_total")}, "ops"),
    Panel("Episodes that ended", {"{{reason}}": _rate("osgym_episodes_ended_total", "reason")}, "ops"),
    Panel("Evaluations", {"{{outcome}}": _rate("osgym_evaluations_total", "outcome")}, "ops"),
    Panel("Replicas retired",
          {"{{reason}}": f"{_rate('osgym_replicas_retired_total', 'reason')} > 0"}, "ops"),
    Panel("What blocks pools", {"{{by}}": f"sum by (by) (osgym_pool_blocked{OF}) > 0"}),
    Panel("No replica in time", {"{{host}}": _rate("osgym_no_capacity_total", "host")}, "ops"),
    Panel("Memory available", {"{{host}}": f"osgym_ram_available_mib{OF}"}, "mbytes"),
    Panel("Memory of replicas", {"{{host}}": f"osgym_replicas_pss_mib{OF}"}, "mbytes"),
    Panel("Disk free", {"{{host}}": f"osgym_disk_free_mib{OF}"}, "mbytes"),
    Panel("Hosts that drain", {"{{host}}": f"osgym_draining{OF} > 0"}),
    Panel("Notices", {"{{host}} {{kind}}": f"osgym_notice{OF}"}),
    Panel("Alerts", {"{{alertname}} {{host}}": 'ALERTS{alertname=~"Osgym.*", alertstate="firing"}'}),
)  # fmt: skip


def dashboard() -> dict[str, Any]:
    """Return dashboard.json, for Grafana's import or provisioning folder."""
    return {
        "uid": UID,
        "title": "OSGym fleet",
        "tags": ["osgym"],
        "schemaVersion": SCHEMA,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"},
                _variable("fleet", 'label_values(up{job=~"osgym.*"}, fleet)'),
                _variable("host", 'label_values(up{fleet=~"$fleet"}, host)'),
            ]
        },
        "panels": [_panel(number, panel) for number, panel in enumerate(PANELS)],
    }


def _variable(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name, "type": "query", "datasource": SOURCE, "query": {"query": query, "refId": name},
        "definition": query, "refresh": 2, "multi": True, "includeAll": True, "allValue": ".*",
        "current": {"text": "All", "value": "$__all"}, "sort": 1,
    }  # fmt: skip


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    per_row = 24 // WIDTH
    found: dict[str, Any] = {
        "id": number + 1,
        "type": panel.kind,
        "title": panel.title,
        "datasource": SOURCE,
        "gridPos": {
            "x": number % per_row * WIDTH, "y": number // per_row * HEIGHT, "w": WIDTH, "h": HEIGHT,
        },
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + index), "datasource": SOURCE, "expr": expr, "legendFormat": legend}
            for index, (legend, expr) in enumerate(panel.exprs.items())
        ],
    }  # fmt: skip
    if panel.kind == "stat":
        found["options"] = {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value"}
    return found
