"""Hosts that exist already, by ssh or on this machine."""
