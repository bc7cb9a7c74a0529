"""Existing machines: brought to serve, inspected and taken down over a link."""
