"""Faults, one after the other, under real work: `python -m benchmarks.chaos --help`."""
