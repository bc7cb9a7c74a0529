"""Exports of a data set: Hugging Face datasets, WebDataset, files of chats."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from osgym_sdk._exceptions import ConfigError, DatasetError
from osgym_sdk._inputs.reading import as_reading
from osgym_sdk.data._dataset import Dataset, Episode, Step
from osgym_sdk.data._schema import COLUMNS
from osgym_sdk.wire import Done

OnEpisode = Callable[[], object]
SHARD_BYTES = 512 * 1024 * 1024
_GROUP_ROWS = 32
_NOT_SAID = ("screenshot", "observe", "done", "fail")
_IMAGES = ("image_before", "image")
_FRAME_OF = {"image_before": "frame_before", "image": "frame"}


_CARD = """---
configs:
- config_name: default
  data_files:
  - split: train
    path: data/train-*.parquet
---

Steps of computer-use episodes, recorded by OSGym. One row per step: `image_before` is what the policy saw,
`executed` what was done.
"""


@dataclass(frozen=True, slots=True)
class Exported:
    """Result of an export. ``skipped``: number of steps that it has no words for, with the first reason."""

    steps: int
    skipped: int = 0
    reason: str = ""


def _nothing() -> None:
    return None


def make_folder(folder: Path) -> None:
    """Make an empty folder.

    Raises:
        DatasetError: it has something in it, or cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise DatasetError(f"{folder} is not empty", code="dataset_io")
    except OSError as exc:
        raise DatasetError(f"{folder}: {exc.strerror}", code="dataset_io") from exc


def export_huggingface(dataset: Dataset, folder: Path, on_episode: OnEpisode = _nothing) -> Exported:
    """Write a folder that ``datasets.load_dataset(folder)`` loads, with the images as features.

    One row per step, with all columns (JSON as text), ``image_before`` and ``image``.

    Raises:
        DatasetError: it cannot be written, or the data set not read.
    """
    make_folder(folder)
    schema = _huggingface_schema()
    (folder / "data").mkdir()
    count = shard = 0
    episodes = dataset.episodes()
    while True:
        path = folder / "data" / f"train-{shard:05d}.parquet"
        written, more = _write_shard(dataset, path, schema, episodes, on_episode)
        count += written
        shard += 1
        if not more:
            break
    (folder / "README.md").write_text(_CARD, "utf-8")
    return Exported(count)


def _write_shard(
    dataset: Dataset, path: Path, schema: pa.Schema, episodes: Iterator[Episode], on_episode: OnEpisode
) -> tuple[int, bool]:
    """Write one file; return how many rows, and whether there are more episodes."""
    count = size = 0
    rows: list[dict[str, Any]] = []
    try:
        with pq.ParquetWriter(path, schema, compression="zstd") as writer:
            for episode in episodes:
                for step in episode.steps:
                    row = dict(step.raw)
                    for image in _IMAGES:
                        data = _image_data(dataset, step, image)
                        size += len(data or b"")
                        row[image] = None if data is None else {"bytes": data, "path": None}
                    rows.append(row)
                count += len(episode)
                on_episode()
                if len(rows) >= _GROUP_ROWS:
                    writer.write_table(pa.Table.from_pylist(rows, schema))
                    rows = []
                if size >= SHARD_BYTES:
                    break
            if rows:
                writer.write_table(pa.Table.from_pylist(rows, schema))
    except OSError as exc:
        raise DatasetError(f"{path}: {exc.strerror or exc}", code="dataset_io") from exc
    return count, size >= SHARD_BYTES


def _huggingface_schema() -> pa.Schema:
    image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    fields = [pa.field(name, image) for name in _IMAGES]
    fields += [pa.field(column.name, column.type) for column in COLUMNS]
    features: dict[str, Any] = {name: {"_type": "Image"} for name in _IMAGES}
    for column in COLUMNS:
        features[column.name] = _feature(column.type)
    info = {"info": {"features": features}}
    return pa.schema(fields, metadata={b"huggingface": json.dumps(info).encode()})


def _feature(kind: pa.DataType) -> dict[str, Any]:
    if pa.types.is_list(kind):
        return {"feature": _feature(kind.value_type), "_type": "List"}
    names = {pa.string(): "string", pa.int64(): "int64", pa.float64(): "float64", pa.bool_(): "bool"}
    return {"dtype": names.get(kind, "timestamp[us, tz=UTC]"), "_type": "Value"}


def export_webdataset(
    dataset: Dataset, folder: Path, on_episode: OnEpisode = _nothing, shard_bytes: int = SHARD_BYTES
) -> Exported:
    """Write tar shards as WebDataset reads them: of each step ``.before.png``, ``.after.png``, ``.json``.

    Raises:
        DatasetError: it cannot be written, or the data set not read.
    """
    make_folder(folder)
    count = shard = 0
    tar: tarfile.TarFile | None = None
    try:
        for episode in dataset.episodes():
            for step in episode.steps:
                if tar is None or tar.offset >= shard_bytes:
                    if tar is not None:
                        tar.close()
                    tar = tarfile.open(folder / f"steps-{shard:06d}.tar", "w")  # noqa: SIM115 - closed below
                    shard += 1
                _add_sample(tar, dataset, step)
                count += 1
            on_episode()
    except OSError as exc:
        raise DatasetError(f"{folder}: {exc.strerror or exc}", code="dataset_io") from exc
    finally:
        if tar is not None:
            tar.close()
    return Exported(count)


def _add_sample(tar: tarfile.TarFile, dataset: Dataset, step: Step) -> None:
    key = f"{step['episode']}-{step['step']:06d}"
    for name, image in (("before", "image_before"), ("after", "image")):
        data = _image_data(dataset, step, image)
        if data is not None:
            _add_file(tar, f"{key}.{name}.{extension(data)}", data)
    values = {name: value if name != "time" else str(value) for name, value in step.items()}
    _add_file(tar, f"{key}.json", json.dumps(values, ensure_ascii=True).encode())


def _add_file(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


def export_chat(
    dataset: Dataset,
    folder: Path,
    on_episode: OnEpisode = _nothing,
    *,
    grammar: str = "osgym",
    history: int = 4,
) -> Exported:
    """Write ``train.jsonl`` with one conversation per step, as chat fine-tuning takes it, and ``images/``.

    The user's message has the instruction, what was said in up to ``history`` steps before, and the image
    that the policy saw; the assistant's has the model's words where they were recorded in this grammar, else
    the actions that were done, said in it.

    Args:
        grammar: ``uitars``, ``qwen``, ``osgym``, …, with a version after a slash where it has several.

    Raises:
        ConfigError: there is no such grammar.
        DatasetError: it cannot be written, or the data set not read.
    """
    say = _make_speaker(grammar)
    make_folder(folder)
    (folder / "images").mkdir()
    count = skipped = 0
    reason = ""
    try:
        with (folder / "train.jsonl").open("w", encoding="utf-8") as lines:
            for episode in dataset.episodes():
                said: list[str] = []
                for step in episode.steps:
                    try:
                        words = say(step)
                    except ConfigError as exc:
                        skipped, reason = skipped + 1, reason or str(exc)
                        continue
                    image = _chat_image(dataset, step, folder)
                    if image is None:
                        skipped, reason = skipped + 1, reason or "a step without an image"
                        continue
                    line = _conversation(step, image, said[-history:] if history else [], words)
                    lines.write(json.dumps(line, ensure_ascii=True) + "\n")
                    said.append(words)
                    count += 1
                on_episode()
    except OSError as exc:
        shutil.rmtree(folder / "images", ignore_errors=True)
        raise DatasetError(f"{folder}: {exc.strerror or exc}", code="dataset_io") from exc
    return Exported(count, skipped, reason)


def _make_speaker(grammar: str) -> Callable[[Step], str]:
    """Return a function that renders a step in a grammar (``uitars``, ``qwen/qwen2.5-vl``, …).

    The model's own words are taken where they were recorded and the grammar reads them. What is returned
    raises ConfigError where the grammar has no words for the actions.

    Raises:
        ConfigError: there is no such grammar.
    """
    from osgym_protocol.grammars import CannotRender, Context, Ending, UnreadableAction, parse, render

    reading = None if grammar == "auto" else as_reading(grammar, None)
    if reading is None:
        raise ConfigError("the grammar of an export must be given by name, not as auto")
    endings = {Done.DONE: Ending.DONE, Done.FAIL: Ending.FAIL}

    def say(step: Step) -> str:
        if not step["screen_width"] or not step["screen_height"]:
            raise ConfigError("the size of the screen was not recorded")
        screen = (step["screen_width"], step["screen_height"])
        size = (step["frame_width"] or screen[0], step["frame_height"] or screen[1])
        context = Context(screen, None, reading.version, size)
        words = step["text"]
        if words:
            try:
                parse(words, context, reading.grammar)
                return str(words)
            except (UnreadableAction, ValueError):
                pass  # a thought beside the actions, or another grammar
        actions = [action for action in step.actions if action.get("op") not in _NOT_SAID]
        ending = endings.get(step["done"])
        try:
            said = render(actions, context, reading.grammar, ending)
        except (CannotRender, ValueError, KeyError, TypeError) as exc:
            raise ConfigError(f"{grammar} cannot say {json.dumps(step.actions)[:200]}: {exc}") from exc
        text = said if isinstance(said, str) else json.dumps(said, ensure_ascii=True)
        return f"Thought: {words}\n{text}" if words and reading.grammar == "uitars" else text

    return say


def _conversation(step: Step, image: str, said: Sequence[str], words: str) -> dict[str, Any]:
    text = step["instruction"] or ""
    if said:
        text += "\n\nBefore:\n" + "\n".join(said)
    content = [
        {"type": "text", "text": text},
        {"type": "image_url", "image_url": {"url": image}},
    ]
    return {
        "messages": [{"role": "user", "content": content}, {"role": "assistant", "content": words}],
        "images": [image],
        "episode": step["episode"],
        "step": step["step"],
        "reward": step["reward"],
    }


def _chat_image(dataset: Dataset, step: Step, folder: Path) -> str | None:
    data = _image_data(dataset, step, "image_before")
    if data is None:
        return None
    name = f"images/{step['frame_before']}.{extension(data)}"
    if not (folder / name).exists():
        (folder / name).write_bytes(data)
    return name


def _image_data(dataset: Dataset, step: Step, image: str) -> bytes | None:
    name = step[_FRAME_OF[image]]
    return None if name is None else dataset.frame_bytes(name)


def extension(data: bytes) -> str:
    """Return how a file with this image is to end."""
    if data.startswith(b"\xff\xd8"):
        return "jpg"
    return "webp" if data[8:12] == b"WEBP" else "png"
