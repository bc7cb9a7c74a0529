"""Input fidelity: events that programs of every GUI toolkit receive, compared with the actions."""
