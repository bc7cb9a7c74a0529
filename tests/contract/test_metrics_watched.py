"""What alert rules and dashboard of a fleet read, a host agent exports; what it exports is documented."""

from __future__ import annotations

import json
import re

from prometheus_client.parser import text_string_to_metric_families
from tests.support import ROOT
from tests.support.branching_calls import evaluate, forked, kept
from tests.support.fake_runtime import TASK, Service

from osgym_infra.fleet.monitoring.dashboard import PANELS, dashboard
from osgym_infra.fleet.monitoring.rules import rules
from osgym_infra.fleet.monitoring.scrape import MOST_SAMPLES, ScrapeOptions


async def test_every_metric_that_is_watched_is_exported(service: Service) -> None:
    """By its name, also with all the labels that are asked for; and far below the limit of a scrape."""
    await service.create()
    await service.http.post("/v1/drain")
    samples: dict[str, set[str]] = {}
    count = 0
    for family in text_string_to_metric_families((await service.http.get("/metrics")).text):
        ending = {"counter": "_total", "histogram": "_bucket"}.get(family.type, "")
        samples.setdefault(f"{family.name}{ending}", set())  # also one that has no series yet
        for sample in family.samples:
            samples.setdefault(sample.name, set()).update(sample.labels)
            count += 1
    assert count < MOST_SAMPLES / 4
    queries = [rule["expr"] for rule in rules(ScrapeOptions())["groups"][0]["rules"]]
    queries += [target["expr"] for panel in dashboard()["panels"] for target in panel["targets"]]
    watched = set(re.findall(r"\bosgym_\w+", json.dumps(queries)))
    assert len(watched) >= 20
    assert watched - set(samples) == set()
    for query in queries:
        for name, labels in re.findall(r"(osgym_\w+)\{([^}]*)\}", query):
            asked = set(re.findall(r"(\w+)(?:=|!)", labels)) - {"fleet", "host"}
            assert asked <= samples.get(name, set()), (name, asked)


def table(heading: str) -> list[list[str]]:
    """The rows of a table of docs/monitoring.md, cell by cell, without their backticks."""
    section = (ROOT / "docs/monitoring.md").read_text("utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip().replace("`", "") for cell in line.strip("|").split(" | ")] for line in lines]


async def exported(service: Service) -> dict[str, tuple[str, frozenset[str]]]:
    """Name, type and labels of all that is scraped from a host agent on which everything has happened."""
    parent = await service.create(task=TASK)
    await service.step(parent, 1, {"op": "click", "x": 1, "y": 1})
    await kept(service, parent)
    (child,) = await forked(service, parent, 1)
    await evaluate(service, child)
    await service.http.post("/v1/drain")
    found: dict[str, tuple[str, frozenset[str]]] = {}
    began = set()
    for family in text_string_to_metric_families((await service.http.get("/metrics")).text):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        if family.type == "gauge" and name.endswith("_created"):
            began.add(name.removesuffix("_created"))
        else:
            found[name] = (family.type, frozenset(labels))
        assert family.samples or name == "osgym_lease_pressure_percent", f"{name}: no series is made here"
    assert began == {
        name.removesuffix("_total")
        for name, (kind, _) in found.items()
        if kind in ("counter", "histogram") and name.startswith("osgym_") and name not in AT_SCRAPE
    }
    return found


AT_SCRAPE = {"osgym_replicas_retired_total", "osgym_wakes_total"}
"""Counters that are made when they are asked for."""


async def test_every_metric_is_documented_as_it_is(service: Service) -> None:
    """In docs/monitoring.md by name, type and labels; no other is there; each has a unit and a meaning."""
    documented = {}
    for heading in ("Replicas and room", "Episodes", "Branches", "The process"):
        for name, kind, labels, unit, meaning in table(heading):
            assert unit and meaning, name
            documented[name] = (kind, frozenset(labels.split(", ")) - {"–"})
    assert documented == await exported(service)


def test_alerts_and_panels_are_documented() -> None:
    """By name, how long each waits and how grave it is; panels with what they read."""
    alerts = [[rule["alert"], rule["for"], rule["labels"]["severity"]]
              for rule in rules(ScrapeOptions())["groups"][0]["rules"]]  # fmt: skip
    assert [row[:3] for row in table("Alerts")] == alerts
    read = [
        [
            panel.title,
            {n.removesuffix("_bucket") for n in re.findall(r"\b(?:osgym_\w+|up|ALERTS)\b(?=[{)])", query)},
        ]
        for panel in PANELS
        for query in [" ".join(panel.exprs.values())]
    ]
    assert [[title, set(names.split(", "))] for title, names in table("The dashboard of Grafana")] == read
