"""All metrics: each module here is imported, and each function that `metric` declares is one.

The parsers they use are imported inside the functions, so that the host, which reads the declarations,
stays light; the confined process has them loaded before it forks.
"""

import importlib
import pkgutil

from osgym_host.tasks.evaluator.registry import METRICS, TRANSFORMS

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["METRICS", "TRANSFORMS"]
