"""Data sets of trajectories: written as episodes run, read at random, handed to trainers.

>>> from osgym_sdk.data import Dataset, DatasetWriter
>>> with DatasetWriter("runs/monday") as writer:  # doctest: +SKIP
...     for result in client.run("tasks", policy, record=writer):
...         print(result.reward)
>>> Dataset.open("runs/monday")[0].image  # doctest: +SKIP

Needs pyarrow: ``pip install 'osgym-sdk[data]'``. ``docs/data.md`` has the columns.
"""

from __future__ import annotations

try:
    import pyarrow  # noqa: F401 - looked for here, so that the error names the extra
except ImportError as exc:
    raise ImportError("osgym_sdk.data needs pyarrow: pip install 'osgym-sdk[data]'") from exc

from osgym_sdk.data._animation import write_gif, write_mp4
from osgym_sdk.data._convert import Converted, convert_recordings, recorded_episodes
from osgym_sdk.data._dataset import Dataset, Episode, Step
from osgym_sdk.data._export import Exported, export_chat, export_huggingface, export_webdataset
from osgym_sdk.data._replay import episode_page
from osgym_sdk.data._schema import COLUMNS, SCHEMA_VERSION
from osgym_sdk.data._stats import DatasetStats, TaskStats, dataset_stats
from osgym_sdk.data._writer import DatasetWriter

__all__ = [
    "COLUMNS",
    "SCHEMA_VERSION",
    "Converted",
    "Dataset",
    "DatasetStats",
    "DatasetWriter",
    "Episode",
    "Exported",
    "Step",
    "TaskStats",
    "convert_recordings",
    "dataset_stats",
    "episode_page",
    "export_chat",
    "export_huggingface",
    "export_webdataset",
    "recorded_episodes",
    "write_gif",
    "write_mp4",
]
