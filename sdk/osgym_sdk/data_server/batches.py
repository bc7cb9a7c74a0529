"""Rows and batches of numbers from prompts and answers, in the form that OSGym's trainer takes."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from osgym_sdk._exceptions import ConfigError
from osgym_sdk.data_server.history import IMAGE, VISION_END, VISION_START, Prompt, split_prompt

Ids = npt.NDArray[np.int64]
_STACKED = ("responses", "input_ids", "attention_mask", "position_ids", "reward", "mask")


class Tokenizer(Protocol):
    """The part of a tokenizer that is used; those of transformers have it."""

    pad_token_id: int | None

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Return the numbers of a text."""

    def decode(self, token_ids: Any) -> str:
        """Return the text of numbers."""


def padded(ids: Sequence[int], length: int, pad: int, left: bool) -> tuple[Ids, Ids]:
    """Return numbers cut and filled to a length, and the mask of those that are real.

    Prompts (``left``) lose their beginning and are filled before it, answers lose their end.
    """
    kept = list(ids[-length:] if left else ids[:length])
    empty = length - len(kept)
    before, after = (empty, 0) if left else (0, empty)
    row = np.pad(np.array(kept, dtype=np.int64), (before, after), constant_values=pad)
    mask = np.pad(np.ones(len(kept), dtype=np.int64), (before, after))
    return row, mask


def positions(attention_mask: Ids) -> Ids:
    """Return the place of each number among the real ones, 0 before the first."""
    return np.clip(np.cumsum(attention_mask, axis=-1) - 1, 0, None).astype(np.int64)


class RowMaker:
    """Makes the row of a state: numbers of its prompt, and of its answer where there is one.

    Args:
        tokenizer, processor, is_multi_modal, max_prompt_length, max_response_length: see
            :class:`MultiTurnDataloader`.
        position_ids: ``(input_ids, image_grid_thw, attention_mask) -> position ids``, for models whose
            positions depend on images (Qwen-VL's rope index).
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        processor: Any,
        is_multi_modal: bool,
        max_prompt_length: int,
        max_response_length: int,
        position_ids: Callable[..., Any] | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._processor = processor
        self._is_multi_modal = is_multi_modal
        self._max_prompt = max_prompt_length
        self._max_response = max_response_length
        self._positions = position_ids
        if is_multi_modal and processor is not None and position_ids is None:
            raise ConfigError(
                "a processor needs position_ids=, the model's rope index, since "
                "positions depend on the images"
            )

    def row(self, state: Mapping[str, Any], worker_id: int, meta: Any, response: bool) -> dict[str, Any]:
        """Return the row of a state: of ``obs``, or of ``prev_obs`` with its answer and its return."""
        row: dict[str, Any] = {}
        text, grid = self._prompt(state["prev_obs" if response else "obs"], row)
        pad = self._tokenizer.pad_token_id or 0
        ids = self._tokenizer.encode(text, add_special_tokens=False)
        input_ids, mask = padded(ids, self._max_prompt, pad, left=True)
        if response:
            said = self._tokenizer.encode(state["action"], add_special_tokens=False)
            row["responses"], said_mask = padded(said, self._max_response, pad, left=False)
            input_ids = np.concatenate([input_ids, row["responses"]])
            mask = np.concatenate([mask, said_mask])
            row["reward"] = np.float32(state["reward"])
        if self._positions is not None:
            row["position_ids"] = np.asarray(self._positions(input_ids, grid, mask))
        else:
            row["position_ids"] = positions(mask)
        row |= {"input_ids": input_ids, "attention_mask": mask, "worker_id": worker_id, "meta_info": meta}
        row["mask"] = np.float32(1.0)
        return row

    def masked_row(self, like: Mapping[str, Any]) -> dict[str, Any]:
        """Return a row of nothing, of another's shape: its ``mask`` is 0 and its worker -1."""
        row = dict(like)
        for key in _STACKED:
            if key in row:
                row[key] = np.zeros_like(row[key])
        row |= {"worker_id": -1, "meta_info": {"uid": ""}}
        return row

    def _prompt(self, prompt: str | Prompt, row: dict[str, Any]) -> tuple[str, Any]:
        """Return the text of a prompt and the grid of its images; fill in what the row has of them."""
        if not self._is_multi_modal:
            text = prompt.text("") if isinstance(prompt, Prompt) else str(prompt)
            row["raw_prompt_ids"] = self._tokenizer.encode(text, add_special_tokens=False)
            return text, None
        text, coded = split_prompt(prompt)
        row["raw_prompt_ids"] = self._tokenizer.encode(text, add_special_tokens=False)
        images = [_decoded(one) for one in coded]
        row["multi_modal_data"] = {"image": images}
        if self._processor is None:
            return text, None
        made = self._processor.image_processor(images, return_tensors="np")
        row["multi_modal_inputs"] = dict(made)
        grid = made.get("image_grid_thw")
        if grid is None:
            return text, None
        merged = self._processor.image_processor.merge_size**2
        pieces = text.split(IMAGE)
        text = pieces[0]
        for index, piece in enumerate(pieces[1:]):
            count = int(np.prod(np.asarray(grid[index]))) // merged
            text += f"{VISION_START}{self._processor.image_token * count}{VISION_END}{piece}"
        return text, grid


def collate(rows: Sequence[Mapping[str, Any]], tensors: str = "np") -> dict[str, Any]:
    """Return a batch: numbers stacked, of dtype int64 but for rewards and masks; the rest arrays of objects.

    Raises:
        ConfigError: ``tensors`` is neither ``"np"`` nor ``"pt"``.
    """
    if tensors not in ("np", "pt"):
        raise ConfigError(f'tensors must be "np" or "pt", not {tensors!r}')
    batch: dict[str, Any] = {}
    for key in rows[0] if rows else ():
        values = [row[key] for row in rows]
        if key in _STACKED:
            stacked = np.stack(values)
            batch[key] = _torch().from_numpy(stacked) if tensors == "pt" else stacked
        else:
            batch[key] = np.empty(len(values), dtype=object)
            for index, value in enumerate(values):
                batch[key][index] = value
    return batch


def default_tensors() -> str:
    """Return ``"pt"`` where torch is installed, else ``"np"``."""
    return "np" if importlib.util.find_spec("torch") is None else "pt"


def _torch() -> Any:
    return importlib.import_module("torch")


def _decoded(data: bytes) -> Any:
    from PIL import Image

    with Image.open(io.BytesIO(data), formats=("JPEG", "PNG")) as image:
        return image.convert("RGB")
