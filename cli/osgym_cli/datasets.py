"""Data sets of trajectories opened for commands, with errors that a person can read."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from osgym_sdk import ConfigError, DatasetError

if TYPE_CHECKING:
    from osgym_sdk.data import Dataset, Episode


def dataset_module() -> Any:
    """Import `osgym_sdk.data`. Raises click.ClickException if the SDK's extra `data` is not installed."""
    try:
        return importlib.import_module("osgym_sdk.data")
    except ImportError as error:
        raise click.ClickException(str(error)) from error


@contextlib.contextmanager
def dataset_errors() -> Iterator[None]:
    """Turn errors of data sets into one line and exit code 1."""
    try:
        yield
    except (DatasetError, ConfigError) as error:
        raise click.ClickException(str(error)) from error


def open_dataset(path: Path) -> Dataset:
    found: Dataset = dataset_module().Dataset.open(path)
    return found


def find_episode(dataset: Dataset, name: str | None) -> Episode:
    """Return the episode whose name begins with `name`; without a name, the only episode."""
    if name is None:
        episodes = list(dataset.episodes())
        if len(episodes) != 1:
            raise click.ClickException(
                f"the data set has {len(episodes)} episodes; name one of those that `osgym data view` lists"
            )
        return episodes[0]
    try:
        return dataset.episode(name)
    except KeyError as error:
        raise click.ClickException(str(error.args[0])) from error
