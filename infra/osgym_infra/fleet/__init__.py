"""Fleet as a Pulumi program: from a checked configuration to hosts, outputs and fleet.json."""
