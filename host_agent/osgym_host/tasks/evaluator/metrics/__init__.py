"""All metrics; importing this registers them."""

from osgym_host.tasks.evaluator.metrics import documents, images, settings, tables, text

__all__ = ["documents", "images", "settings", "tables", "text"]
