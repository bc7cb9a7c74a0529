"""What tests of several files share: fakes, machines to test on, and clients of them."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The repository: where `python -m tests.support.…` runs."""
