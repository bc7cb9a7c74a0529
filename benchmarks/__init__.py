"""Scripts that measure: each prints what it ran, on what, how often, and keeps the raw series."""
