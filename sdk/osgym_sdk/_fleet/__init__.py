"""Hosts of a client: discovery, membership, placement of episodes, leases."""
