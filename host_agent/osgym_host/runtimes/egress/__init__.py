"""Egress of replicas, for every runtime: links to the host, its rules for them, name resolution."""
