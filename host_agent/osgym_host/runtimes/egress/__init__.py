"""Whom replicas may reach, for every runtime: links to the host, its rules for them, names for guests."""
