"""Our Pulumi resource provider: hosts, secrets of a fleet, archives."""
