"""The metrics that are there, with what each takes. Light: nothing here parses anything.

The functions are in `osgym_host.tasks.evaluator.metrics` and run in the confined process only. Names
are OSWorld's where the meaning is the same. ``compare_table`` has a smaller set of rules than
OSWorld's; a rule that is not here makes the task unsupported, by name. Our own: ``check_xlsx_cells``,
``check_document_text``, ``check_slides_text``, ``check_image_properties``, ``check_window_titles``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

TABLE_RULES = frozenset({"sheet_name", "sheet_data", "check_cell"})
CELL_METHODS = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "re", "approx"})


def _everything(options: Mapping[str, Any]) -> list[str]:
    return []


@dataclass(frozen=True, slots=True)
class Metric:
    """What a metric takes.

    Attributes:
        options: names of the options it knows.
        unsupported: names what in the options it cannot do.
    """

    takes_result: bool = True
    needs_expected: bool = True
    options: frozenset[str] = frozenset()
    unsupported: Callable[[Mapping[str, Any]], list[str]] = _everything


def _unsupported_table_rules(options: Mapping[str, Any]) -> list[str]:
    rules = options.get("rules", [])
    if not isinstance(rules, list):
        return ["rules that are not a list"]
    missing: list[str] = []
    for rule in rules:
        kind = rule.get("type") if isinstance(rule, dict) else None
        if kind not in TABLE_RULES:
            missing.append(f"rule {kind}")
        elif kind == "check_cell":
            properties = rule.get("props")
            if not isinstance(properties, dict) or set(properties) - {"value"}:
                missing.append("rule check_cell of other properties than value")
            else:
                method = str((properties.get("value") or {}).get("method", "eq")).split(":")[0]
                if method not in CELL_METHODS:
                    missing.append(f"rule check_cell with method {method}")
    return missing


_TEXT = frozenset({"ignore_blanks", "ignore_case"})
METRICS: Mapping[str, Metric] = {
    "infeasible": Metric(takes_result=False, needs_expected=False),
    # text and lists
    "exact_match": Metric(),
    "fuzzy_match": Metric(),
    "match_in_list": Metric(),
    "is_in_list": Metric(),
    "literal_match": Metric(options=frozenset({"type", "ignore_case"})),
    "check_include_exclude": Metric(),
    "check_list": Metric(),
    "file_contains": Metric(),
    "compare_config": Metric(),
    "compare_answer": Metric(),
    "compare_text_file": Metric(options=_TEXT),
    "is_utc_0": Metric(needs_expected=False),
    "is_extension_installed": Metric(),
    "check_moved_jpgs": Metric(),
    "check_window_titles": Metric(),
    # JSON and settings
    "check_json": Metric(),
    "check_direct_json_object": Metric(),
    "check_json_settings": Metric(),
    "check_json_keybindings": Metric(),
    "check_config_status": Metric(),
    "check_auto_saving_time": Metric(),
    "check_qt_bgcone": Metric(),
    "check_qt_max_volume": Metric(),
    "check_qt_minimal_view": Metric(),
    "check_one_instance_when_started_from_file": Metric(),
    # spreadsheets
    "compare_csv": Metric(options=frozenset({"strict", "ignore_case"})),
    "compare_table": Metric(
        needs_expected=False, options=frozenset({"rules"}), unsupported=_unsupported_table_rules
    ),
    "check_xlsx_cells": Metric(),
    # documents, slides, images
    "compare_docx_files": Metric(
        options=frozenset({"ignore_blanks", "ignore_case", "ignore_order", "delete_empty_lines"})
    ),
    "compare_docx_files_and_ignore_new_lines": Metric(options=frozenset({"ignore_blanks"})),
    "check_document_text": Metric(),
    "check_slides_text": Metric(),
    "check_image_size": Metric(),
    "check_image_properties": Metric(),
}
