"""What a task needs and this host does not have; found before anything runs."""

from __future__ import annotations

from osgym_host.tasks.catalogue import METRICS
from osgym_host.tasks.errors import InvalidTask
from osgym_host.tasks.getters import getter_problems
from osgym_host.tasks.schema import Check, Task, UnknownStep


def unsupported_features(task: Task) -> list[str]:
    """Names of setup steps, getters, metrics and options that are not there, in order of appearance.

    Raises:
        InvalidTask: a getter's fields are wrong, or a metric lacks an argument.
    """
    missing: list[str] = []
    problems: list[dict[str, str]] = []
    for step in (*task.config, *task.evaluator.postconfig):
        if isinstance(step, UnknownStep):
            missing.append(f"setup step {step.type}")
    for index, check in enumerate(task.evaluator.checks):
        features, faults = _check(check)
        missing.extend(features)
        field = f"evaluator.checks[{index}]" if len(task.evaluator.checks) > 1 else "evaluator"
        problems.extend({"field": f"{field}.{name}", "message": text} for name, text in faults)
    if problems and not missing:
        text = "; ".join(f"{p['field']}: {p['message']}" for p in problems[:5])
        raise InvalidTask(f"the task cannot be scored: {text}", {"problems": problems[:50]})
    return list(dict.fromkeys(missing))


def _check(check: Check) -> tuple[list[str], list[tuple[str, str]]]:
    metric = METRICS.get(check.func)
    missing = [] if metric else [f"metric {check.func}"]
    faults: list[tuple[str, str]] = []
    for name, getter in (("result", check.result), ("expected", check.expected)):
        if getter is not None:
            features, sentences = getter_problems(getter)
            missing.extend(features)
            faults.extend((name, sentence) for sentence in sentences)
    if metric is None:
        return missing, faults
    if metric.takes_result and check.result is None:
        faults.append(("result", f"{check.func} needs a result"))
    if metric.needs_expected and check.expected is None:
        faults.append(("expected", f"{check.func} needs an expected value"))
    missing.extend(f"option {o} of {check.func}" for o in check.options if o not in metric.options)
    missing.extend(f"{feature} of {check.func}" for feature in metric.unsupported(check.options))
    return missing, faults
