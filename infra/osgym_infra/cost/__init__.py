"""What a fleet costs and which hosts to take. Pure."""
