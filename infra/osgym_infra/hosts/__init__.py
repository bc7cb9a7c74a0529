"""Machines that exist already: reached by ssh (or this one, without), brought to serve, looked at, taken down."""
