"""What alert rules and dashboard of a fleet read is what a host agent exports."""

from __future__ import annotations

import json
import re

from prometheus_client.parser import text_string_to_metric_families
from tests.support.fake_runtime import Service

from osgym_infra.fleet.monitoring.dashboard import dashboard
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
    labelled = {"osgym_episodes_ended_total", "osgym_evaluations_total"}
    assert watched - set(samples) == set()
    for query in queries:
        for name, labels in re.findall(r"(osgym_\w+)\{([^}]*)\}", query):
            asked = set(re.findall(r"(\w+)(?:=|!)", labels)) - {"fleet", "host"}
            assert asked <= samples.get(name, set()) or name in labelled, (name, asked)
