"""Hosts at Google Cloud."""
