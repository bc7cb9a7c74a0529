"""Benchmarks: each prints its command, machine and repetitions, and saves the raw series."""
