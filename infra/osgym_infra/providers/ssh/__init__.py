"""Machines that exist already, by ssh or (this one) without."""
