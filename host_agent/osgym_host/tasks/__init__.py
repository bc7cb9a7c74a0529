"""Tasks: the file format, setup steps, getters, and evaluation in a confined process.

The rest of the host imports `osgym_host.tasks.interface` and nothing else of this package. This file
imports nothing, so that the evaluator's process (`osgym_host.tasks.evaluator`) stays small.
"""
