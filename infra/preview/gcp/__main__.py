"""Stands in for the provider `gcp`."""

import sys
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import stand_in

stand_in.main("gcp", version("pulumi-gcp"))
