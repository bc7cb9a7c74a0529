"""Pulumi components: one `ReplicaHosts` for each provider, with the same arguments and outputs."""
