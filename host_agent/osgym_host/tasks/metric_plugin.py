"""The names that a distribution with metrics may import: how a metric is declared and reads its arguments.

A metric is registered as an entry point of the group ``osgym.metrics`` and runs in a confined process, which
can open no file and import nothing. Its module may define ``warm_up()``, a function that imports and uses
once what the metrics import late; the evaluator calls it before the confinement. `docs/plugins.md` has an
example.
"""

from osgym_host.tasks.evaluator.inputs import (
    MAX_ZIP_ENTRIES,
    MAX_ZIP_MEMBER_BYTES,
    MAX_ZIP_TOTAL_BYTES,
    Argument,
    InputFile,
    Unreadable,
    as_file,
    as_text,
    parse_json,
    reader,
    rules_of,
)
from osgym_host.tasks.evaluator.metrics.text import similarity
from osgym_host.tasks.evaluator.registry import (
    METRICS,
    NeededPackages,
    Score,
    differ,
    is_installed,
    metric,
    value_reader,
)

__all__ = [
    "MAX_ZIP_ENTRIES",
    "MAX_ZIP_MEMBER_BYTES",
    "MAX_ZIP_TOTAL_BYTES",
    "METRICS",
    "Argument",
    "InputFile",
    "NeededPackages",
    "Score",
    "Unreadable",
    "as_file",
    "as_text",
    "differ",
    "is_installed",
    "metric",
    "parse_json",
    "reader",
    "rules_of",
    "similarity",
    "value_reader",
]
