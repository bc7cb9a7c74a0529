"""Python packages of the extra ``metrics``, with which some metrics read documents."""

from __future__ import annotations

from osgym_host.tasks.metric_plugin import NeededPackages

DISTRIBUTIONS = {
    "av": "av",
    "cssselect": "cssselect",
    "docx": "python-docx",
    "lxml": "lxml",
    "mutagen": "mutagen",
    "numpy": "numpy",
    "pptx": "python-pptx",
    "pypdf": "pypdf",
    "yaml": "PyYAML",
}
"""Distributions by the name that is imported."""


def needs(*modules: str) -> NeededPackages:
    """Return a metric's ``unsupported`` that names those of the modules that are not installed."""
    return NeededPackages({module: DISTRIBUTIONS[module] for module in modules}, "osgym-host[osworld]")
