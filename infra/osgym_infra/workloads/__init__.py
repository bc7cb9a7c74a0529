"""Workloads of replicas: raw series, fits to them, and built-in profiles."""
