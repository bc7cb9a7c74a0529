"""Hosts at AWS."""
