"""The web of replicas without a network: a proxy on the host that judges where they may go."""
