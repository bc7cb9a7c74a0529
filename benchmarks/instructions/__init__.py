"""Instructions of the hot paths, the same on a busy machine: `python -m benchmarks.instructions`."""
