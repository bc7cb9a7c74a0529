"""Determinism: the frames of the same image, task and actions on every replica."""
