"""Accessibility trees of every toolkit: read often and from two sides, while windows open and close."""
