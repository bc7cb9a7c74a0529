"""One episode: its lease on a desktop, its steps, its branches."""
