"""Machines that exist already: brought to serve, looked at, taken down, by ssh or (this one) without."""
