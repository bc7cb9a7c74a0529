"""Certificates of tasks: end states of a task, each with the score that it must earn, tried on desktops."""
