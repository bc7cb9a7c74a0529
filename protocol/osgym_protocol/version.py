"""Version of all distributions; the others' `_version.py` are links to this file."""

__version__ = "0.2.0"
