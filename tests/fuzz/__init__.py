"""Fuzz targets: parsers of what strangers send, each with a corpus. `python -m tests.fuzz --help`."""
