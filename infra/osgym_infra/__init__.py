"""Cost of a fleet of OSGym hosts, and the programs that bring one up.

`model`, `queueing`, `price` and `plan` are the cost model: pure functions over frozen dataclasses, without
input or output. `catalogue` holds what providers offer, `profile` what was measured of a workload.
"""
