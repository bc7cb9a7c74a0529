"""Publishes how much the host is asked for, so that a cloud grows and shrinks the fleet."""
