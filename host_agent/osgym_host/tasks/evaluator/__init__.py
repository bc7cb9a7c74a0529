"""The confined evaluator: run as ``python -I -m osgym_host.tasks.evaluator`` by `osgym_host.tasks.sandbox`.

`__main__` is the zygote; `confine` shuts a child in; `run` reads a job and calls a metric. Nothing here
imports the rest of the host, and the host imports nothing of this.
"""
