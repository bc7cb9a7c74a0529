"""One job inside the confined process: read it, call the metric, write the verdict."""

from __future__ import annotations

import json
import math
import os
import re
import traceback
from collections.abc import Iterator, Mapping
from typing import Any

from osgym_host.tasks.evaluator.disk.layers import LayerFormat
from osgym_host.tasks.evaluator.emptiness import why_empty
from osgym_host.tasks.evaluator.inputs import Argument, InputFile, TaskObject, Unreadable, file_of_disk
from osgym_host.tasks.evaluator.registry import METRICS, READERS, Metric, MetricEnd, Score

MAX_JOB_BYTES = 64 << 20
MAX_NOTE = 1000


def run_job(job_fd: int, file_fds: list[int], verdict_fd: int) -> None:
    """Read the job from ``job_fd``, call its metric and write one JSON verdict to ``verdict_fd``."""
    verdict = _verdict(job_fd, file_fds)
    data = memoryview(json.dumps(verdict).encode())
    while data:
        data = data[os.write(verdict_fd, data) :]


def _verdict(job_fd: int, file_fds: list[int]) -> dict[str, Any]:
    try:
        with os.fdopen(job_fd, "rb") as file:
            job = json.loads(file.read(MAX_JOB_BYTES))
        fds = iter(file_fds)
        arguments = [_argument(job[role], role, fds) for role in ("result", "expected")]
        arguments[1] = TaskObject.of(arguments[1])
        options = {name: TaskObject.of(value) for name, value in job["options"].items()}
        score = scored(METRICS[job["func"]], arguments[0], arguments[1], options)
    except Unreadable as error:
        if error.role == "result":
            return {"score": 0.0, "note": str(error)[:MAX_NOTE], "unreadable": True}
        return _failure(MetricEnd.EXPECTED, f"the expected value is wrong: {error}")
    except re.error as error:  # patterns are the task's, never the result's
        return _failure(MetricEnd.EXPECTED, f"a pattern of the task is wrong: {error}")
    except MemoryError:
        return _failure(MetricEnd.OUT_OF_MEMORY, "out of memory")
    except Exception as error:  # noqa: BLE001 - the top of the process: the host judges whose fault it is
        where = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{type(error).__name__}: {error} (line {where.lineno} of {where.name})"
        return _failure(MetricEnd.RAISED, text)
    return _as_verdict(score)


def scored(metric: Metric, result: Argument, expected: Argument, options: Mapping[str, Any]) -> Score:
    """Return a metric's score, but 0 for an empty result of which content is expected."""
    given = metric.function(result, expected, **options)
    score = given if isinstance(given, Score) else Score(float(given))
    needs_content = score.score > 0 and metric.takes_result and not metric.accepts_empty
    if needs_content and (why := why_empty(result, expected)):
        return Score(0.0, why)
    return score


def _failure(end: MetricEnd, text: str) -> dict[str, Any]:
    return {"error": text[:MAX_NOTE], "end": end.value}


def _as_verdict(score: Score) -> dict[str, Any]:
    if not math.isfinite(score.score):
        return _failure(MetricEnd.RAISED, f"the score is {score.score}")
    return {"score": min(1.0, max(0.0, float(score.score))), "note": score.note[:MAX_NOTE]}


def _file(named: Any, role: str, fds: Iterator[int]) -> InputFile:
    if isinstance(named, str):
        return InputFile(next(fds), named, role)
    formats = [LayerFormat(text) for text in named["layers"]]
    layers = [next(fds) for _ in formats]
    return file_of_disk(layers, formats, str(named["path"]), str(named["name"]), role)


def _argument(spec: Mapping[str, Any] | None, role: str, fds: Iterator[int]) -> Any:
    if spec is None:
        return None
    value = spec.get("value")
    if spec.get("text"):
        with os.fdopen(next(fds), "rb") as file:
            value = file.read(MAX_JOB_BYTES).decode("utf-8", "surrogatepass")
    if "files" in spec:
        files = [_file(named, role, fds) for named in spec["files"]]
        others = [_file(named, role, fds) for named in spec.get("beside", [])]
        for given in files:
            given.beside = {other.name: other for other in others}
        value = files if spec["many"] else files[0]
    if spec.get("reader"):
        value = READERS[spec["reader"]](value, **spec["reader_options"])
    return value
