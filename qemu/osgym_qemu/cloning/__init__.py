"""Cloning of a golden snapshot: parked machines, resumed as replicas, identified, adopted."""
