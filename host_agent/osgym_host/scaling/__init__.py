"""Publication of the host's lease pressure, by which a cloud grows and shrinks the fleet."""
