"""The root of every exception that the host raises on purpose."""

from __future__ import annotations


class OsgymHostError(Exception):
    """Base of all errors of this distribution."""
