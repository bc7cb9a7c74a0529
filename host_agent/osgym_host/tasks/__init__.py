"""Tasks: the file format, setup steps, getters, and evaluation in a confined process.

This file imports nothing, so that the evaluator's process (`osgym_host.tasks.evaluator`) stays small.
"""
