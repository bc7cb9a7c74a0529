"""An observation, or an error, in the form that a provider's API wants it. Pure functions.

Each answers the calls of one output, all of them and in order, since the providers refuse a turn with a call
that has no answer. Safety checks are passed through, and acknowledged only where the caller says so.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from osgym_sdk._exceptions import ConfigError
from osgym_sdk.wire import ActionResult

if TYPE_CHECKING:
    from PIL.Image import Image

    from osgym_protocol.grammars import Call

NOT_EXECUTED = "Not executed: an earlier computer action in this turn failed."
Form = dict[str, Any]


class Answered(Protocol):
    """The part of an observation that a provider is told."""

    data: bytes

    @property
    def failed_index(self) -> int | None: ...
    @property
    def results(self) -> tuple[ActionResult, ...]: ...
    @property
    def base64(self) -> str: ...
    @property
    def data_url(self) -> str: ...
    @property
    def mime_type(self) -> str: ...
    @property
    def image(self) -> Image: ...
    @property
    def size(self) -> tuple[int, int]: ...
    @property
    def screen(self) -> tuple[int, int]: ...


def fault(obs: Answered, error: object) -> str:
    """Return what went wrong, as one line for the model; empty when nothing did."""
    if error is not None:
        return str(getattr(error, "message", None) or error)
    if obs.failed_index is None:
        return ""
    result = obs.results[-1] if obs.results else None
    if result is None or result.error is None:
        return f"action {obs.failed_index} failed"
    return f"{result.op}: {result.error.message}"


def openai(
    obs: Answered, calls: Iterable[Call], acknowledge: bool, error: object, detail: str | None
) -> list[Form]:
    """Return input items of the Responses API."""
    items: list[Form] = []
    shown: Form = {"image_url": obs.data_url, **({} if detail is None else {"detail": detail})}
    for call in calls:
        item: Form = {
            "type": "computer_call_output",
            "call_id": call.call_id,
            "output": {"type": "computer_screenshot", **shown},
        }
        if _checked(call, acknowledge):
            item["acknowledged_safety_checks"] = [dict(check) for check in call.safety]
        items.append(item)
    said: list[Form] = [] if items else [{"type": "input_image", **shown}]
    if why := fault(obs, error):  # a screenshot is all that the output can hold
        said.append({"type": "input_text", "text": why})
    return [*items, {"type": "message", "role": "user", "content": said}] if said else items


def anthropic(
    obs: Answered,
    calls: Iterable[Call],
    error: object,
    cursor: tuple[int, int] | None,
    zooms: Mapping[str, bytes],
) -> list[Form]:
    """Return blocks of a user's message: a ``tool_result`` for each call."""
    listed, why = list(calls), fault(obs, error)
    if not listed:
        return [*([{"type": "text", "text": why}] if why else []), _anthropic_image(obs.data, obs.mime_type)]
    blocks: list[Form] = []
    failed = False
    for place, call in enumerate(listed):
        block: Form = {"type": "tool_result", "tool_use_id": call.call_id}
        if call.dialect == "toolset":
            block["toolset_name"] = "computer"
        if failed:
            block |= {"is_error": True, "content": NOT_EXECUTED}
        elif why and _is_at_fault(obs, call, error, place == len(listed) - 1):
            failed = True
            block |= {"is_error": True, "content": why}
        elif call.look == "zoom" and call.region is not None:
            cut = zooms.get(call.call_id) or _crop(obs, call.region)
            block["content"] = [_anthropic_image(cut, "image/png")]
        elif call.look == "cursor_position":
            block |= _cursor(obs, cursor)
        elif call.look == "screenshot" or place == len(listed) - 1:
            block["content"] = [_anthropic_image(obs.data, obs.mime_type)]
        else:
            block["content"] = "Done."
        blocks.append(block)
    return blocks


def gemini(
    obs: Answered, calls: Iterable[Call], acknowledge: bool, error: object, url: str | None
) -> list[Form]:
    """Return parts of a user's content, or ``function_result`` steps for calls of the Interactions API."""
    listed, why = list(calls), fault(obs, error)
    image = {"mime_type": obs.mime_type, "data": obs.base64}
    if not listed:
        return [*([{"text": why}] if why else []), {"inline_data": image}]
    parts: list[Form] = []
    failed = False
    for place, call in enumerate(listed):
        said: Form = {} if url is None else {"url": url}
        if failed:
            said["error"] = NOT_EXECUTED
        elif why and _is_at_fault(obs, call, error, place == len(listed) - 1):
            failed = True
            said["error"] = why
        if _checked(call, acknowledge):
            said["safety_acknowledgement"] = "true"
        if call.dialect == "interactions":
            content: list[Form] = [{"type": "text", "text": json.dumps(said)}, {"type": "image", **image}]
            parts.append(
                {"type": "function_result", "name": call.name, "call_id": call.call_id, "result": content}
            )
            continue
        response: Form = {"name": call.name, "response": said, "parts": [{"inline_data": image}]}
        if call.call_id:
            response["id"] = call.call_id
        parts.append({"function_response": response})
    return parts


def chat(obs: Answered, calls: Iterable[Call], error: object, text: str | None) -> list[Form]:
    """Return messages of the Chat Completions API; images stand in the user's, since tools' may have none."""
    why = fault(obs, error)
    messages: list[Form] = [
        {"role": "tool", "tool_call_id": call.call_id, "content": why or "Done."}
        for call in calls
        if call.call_id
    ]
    content: list[Form] = [{"type": "image_url", "image_url": {"url": obs.data_url}}]
    said = "\n".join(part for part in (text, "" if messages else why) if part)
    if said:
        content.append({"type": "text", "text": said})
    return [*messages, {"role": "user", "content": content}]


def _checked(call: Call, acknowledge: bool) -> bool:
    """Tell calls with safety checks, which the caller acknowledges."""
    if call.safety and not acknowledge:
        what = json.dumps([dict(check) for check in call.safety])[:500]
        raise ConfigError(f"the call needs acknowledge=True, since the provider raised safety checks: {what}")
    return bool(call.safety)


def _is_at_fault(obs: Answered, call: Call, error: object, last: bool) -> bool:
    if error is not None:  # of an output that was refused, nothing was done
        return True
    index = obs.failed_index
    return index is not None and (call.first <= index < call.first + call.count or last)


def _anthropic_image(data: bytes, mime_type: str) -> Form:
    source = {"type": "base64", "media_type": mime_type, "data": base64.b64encode(data).decode("ascii")}
    return {"type": "image", "source": source}


def _crop(obs: Answered, region: tuple[int, int, int, int]) -> bytes:
    """Return a part of the screen as PNG, at the resolution of the image."""
    x, y, width, height = region
    across, down = obs.size[0] / obs.screen[0], obs.size[1] / obs.screen[1]
    left, top = int(x * across), int(y * down)
    right, bottom = max(left + 1, round((x + width) * across)), max(top + 1, round((y + height) * down))
    out = io.BytesIO()
    obs.image.crop((left, top, right, bottom)).save(out, "PNG", compress_level=1)
    return out.getvalue()


def _cursor(obs: Answered, cursor: tuple[int, int] | None) -> Form:
    if cursor is None:
        return {"is_error": True, "content": "The position of the cursor is unknown."}
    x, y = cursor[0] * obs.size[0] // obs.screen[0], cursor[1] * obs.size[1] // obs.screen[1]
    return {"content": f"X={x},Y={y}"}
