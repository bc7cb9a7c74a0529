"""Whose fault it is that a metric failed: found out by running it again with what is known to be good.

A metric that raises, crashes or uses up its memory or CPU time failed because of the result (a wrong result:
0), or because of the expected value, the task's rules or the metric itself (then there is no reward). The
difference matters: a result comes from a policy, which must not turn its 0 into a failure of ours by a
file that no parser survives. So the same metric runs with the same expected value on a control: the expected
files in the result's place, or small documents of each kind. If that works, the result was at fault.

What stops a metric from outside (the wall clock, the host's memory) is never the result's: CPU time and
address space are bounded each by itself, and do not depend on what else the host does.
"""

from __future__ import annotations

import base64
import io
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from osgym_host.tasks.context import TaskRun
from osgym_host.tasks.evaluator.registry import MetricEnd
from osgym_host.tasks.sandbox import MetricFailed, MetricJob
from osgym_host.tasks.values import Value

_NAMESPACES = "".join(
    f' xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{urn}:1.0"'
    for name, urn in (("office", "office"), ("text", "text"), ("table", "table"), ("draw", "drawing"))
)
_OPEN_DOCUMENT = (
    f"<office:document-content{_NAMESPACES}><office:body><text:p>a</text:p>"
    '<draw:page draw:name="1"><text:p>a</text:p></draw:page>'
    '<table:table table:name="Sheet1"><table:table-row>'
    '<table:table-cell office:value-type="string"><text:p>a</text:p></table:table-cell>'
    "</table:table-row></table:table></office:body></office:document-content>"
)
_PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVQI12P4//8/AAX+Av7czFnnAAAAAElFTkSuQmCC"
)


@cache
def control_files() -> dict[str, bytes]:
    """Return a small file of each kind that metrics read. The open document is text, table and slides."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("content.xml", _OPEN_DOCUMENT)
    return {
        "control.txt": b"a\n",
        "control.json": b"{}",
        "control.xml": b"<a/>",
        "control.png": _PNG,
        "control.odt": buffer.getvalue(),
    }


CONTROL_DATA: Sequence[object] = ("a\n", "{}", ["a"], {"name": "a", "width": 1, "height": 1, "children": []})
"""What getters give that give no file: text, names, a size, a folder."""


def may_be_the_results(failure: MetricFailed, job: MetricJob) -> bool:
    """Return whether a control can tell more than the failure itself; pure."""
    match failure.end:
        case MetricEnd.OUTSIDE:
            return False
        case MetricEnd.EXPECTED:  # a result that takes all memory makes the expected file unreadable
            return job.expected is not None and bool(job.expected.files)
        case MetricEnd.RAISED | MetricEnd.OUT_OF_MEMORY | MetricEnd.CPU_TIME | MetricEnd.CRASHED:
            return True


async def blame_result(
    job: MetricJob, failure: MetricFailed, run: TaskRun, *, expected_from_replica: bool
) -> str:
    """Return why the result is to blame for a metric's failure.

    Raises:
        MetricFailed: It is not: the metric fails on a control as well, or nothing was its fault.
        EvaluatorError: The control could not be run.
    """
    if job.result is None or not (may_be_the_results(failure, job) or expected_from_replica):
        raise failure
    for control in await _controls(job, run, expected_from_replica=expected_from_replica):
        try:
            await run.ctx.sandbox.run(control)
        except MetricFailed as error:
            message = f"{failure.message}; it fails on a good result as well: {error.message}"
            raise MetricFailed(message, job.func, error.end) from failure
    return f"the result cannot be checked: {failure.message}"


async def _controls(job: MetricJob, run: TaskRun, *, expected_from_replica: bool) -> list[MetricJob]:
    """Return the job with other results."""
    result, expected = job.result, job.expected
    assert result is not None
    if expected is not None and expected.files and not expected_from_replica and result.files:
        good = replace(result, files=expected.files, beside=expected.beside, many=expected.many)
        return [replace(job, result=good)]
    if not result.files:
        given = [Value(data=data) for data in CONTROL_DATA if isinstance(data, type(result.data))]
        return [replace(job, result=value) for value in given]
    jobs = []
    for name, data in control_files().items():
        file = await run.keep(data, name)
        value = replace(result, files=(file,) * len(result.files))
        jobs.append(replace(job, result=value))
        if expected_from_replica and expected is not None and expected.files:
            jobs[-1] = replace(jobs[-1], expected=replace(expected, files=(file,) * len(expected.files)))
    return jobs
