"""Metrics of OSWorld's tasks. They run in the confined evaluator, which imports their parsers beforehand."""
