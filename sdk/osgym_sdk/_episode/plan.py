"""Options of an episode as callers write them, and the plan that the client makes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from osgym_protocol.codec import WireFormatError
from osgym_protocol.codes import ThinkCharge, ThinkMode
from osgym_protocol.episode_options import EpisodeOptions, PlainOptions
from osgym_sdk._exceptions import ConfigError
from osgym_sdk._fleet.scheduler import Ticket
from osgym_sdk._inputs.options import (
    Clock,
    Observe,
    Settle,
    Task,
    as_clock,
    as_observe,
    as_settle,
    as_task,
    as_think,
    as_think_charge,
    as_token_charge,
)
from osgym_sdk._inputs.reading import Reading, as_reading
from osgym_sdk._models.recorder import Recorder

if TYPE_CHECKING:
    from osgym_protocol.grammars import Coordinates


class EpisodeArguments(PlainOptions, total=False):
    """Options of an episode, as keyword arguments of everything that opens episodes.

    The last five stay in the client; the others go to the host as
    :class:`osgym_protocol.episode_options.EpisodeOptions`, which has their bounds.
    """

    settle: Settle | None
    """Wait of steps for the screen, ``"exact"`` by default."""
    observe: Observe | None
    """Image that steps give, full-size PNG by default."""
    clock: Clock | None
    """Time in UTC that the desktop's clock shows at the beginning: ``"2026-01-01T09:00"``, or
    ``{"start": …, "frozen": True}`` to keep it there. By default the task's ``osgym.clock``, else the host's
    time. A host that cannot set the clock ends the start with Unsupported."""
    think_charge: ThinkCharge | Literal["nothing", "real"] | float | None
    """Time by which the clocks of a paused desktop (``think="paused"``) move with each thought:
    ``"nothing"``, the default; ``"real"``, the time that it took; or a number, seconds for each output token
    of the model, which a :class:`Decision` names (``info["usage"]["output_tokens"]``, as agents do; without
    it nothing). ``think_s`` of a step or a decision takes precedence."""

    keep_frames: bool
    """True: ``trajectory`` keeps the images too."""
    reuse_frames: bool
    """True, the default: the host sends no image where nothing changed, and ``obs.data`` is the last one."""
    actions: str | None
    """Grammar of what steps are given: ``"auto"``, ``"openai"``, ``"uitars/1.5"``, …; the client's by
    default, else actions that the host knows."""
    coordinates: Coordinates | None
    """Unit of the grammar's coordinates: ``"pixel"`` of the screen, ``"norm1000"``, ``"norm1"``, or
    ``(width, height)`` of an image; the grammar's own by default."""
    record: Recorder | None
    """Recorder that receives the episode while it runs, such as ``osgym_sdk.data.DatasetWriter(folder)``."""


OF_HOST = frozenset(EpisodeOptions.field_names()) - {"task", "checkpoint"}
"""Options that go to the host; task and checkpoint are arguments of their own."""
_READERS: Mapping[str, Callable[[Any], Any]] = {
    "observe": as_observe,
    "settle": as_settle,
    "clock": as_clock,
    "think": as_think,
    "think_charge": as_think_charge,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodePlan:
    """Options of one episode: the host's, and the client's own."""

    options: EpisodeOptions
    task: Mapping[str, Any] | None = None
    """Task as it was given; ``options`` of an episode that starts from a checkpoint have none."""
    task_id: str | None = None
    keep_frames: bool = False
    reuse_frames: bool = True
    reading: Reading | None = None
    """Grammar of what steps are given; None: actions that the host knows."""
    recorder: Recorder | None = None
    think_s_per_token: float = 0.0
    """Time that the thought before a step is charged for each token; 0: what the host was told."""
    ticket: Ticket | None = None
    """Ticket of a running episode to attach to; None makes a new one."""
    host: str | None = None
    """Only host that may run the episode; None: any."""

    def at_checkpoint(self, checkpoint_id: str, host: str) -> EpisodePlan:
        """Return the plan of an episode with these options that begins where the checkpoint was taken."""
        options = replace(self.options, task=None, strict_setup=False, clock=None, checkpoint=checkpoint_id)
        return replace(self, options=options, host=host)

    def of_child(self, lease_ttl_s: float) -> EpisodePlan:
        """Return the plan of an episode that was branched from one of this plan."""
        return replace(self, options=replace(self.options, lease_ttl_s=lease_ttl_s), ticket=None, host=None)


def plan_episode(
    task: Task | None,
    arguments: EpisodeArguments,
    reading: Reading | None = None,
    checkpoint: str | None = None,
) -> EpisodePlan:
    """Read the options of a new episode.

    Args:
        reading: grammar of the client, used where ``arguments`` have none.

    Raises:
        ConfigError: the task file cannot be read, or an option is wrong.
    """
    if unknown := arguments.keys() - EpisodeArguments.__optional_keys__:
        raise ConfigError(f"an episode has no option {sorted(unknown)[0]!r}")
    given: dict[str, Any] = {name: value for name, value in arguments.items() if value is not None}
    per_token_s = 0.0
    if isinstance(given.get("think_charge"), int | float):
        per_token_s = as_token_charge(given.pop("think_charge"))
        if given.get("think") != ThinkMode.PAUSED:
            raise ConfigError('think_charge is for think="paused"')
    loaded = as_task(task)
    asked = {name: _READERS.get(name, _same)(value) for name, value in given.items() if name in OF_HOST}
    try:
        options = EpisodeOptions(task=loaded, checkpoint=checkpoint, **asked)
    except WireFormatError as exc:
        raise ConfigError(str(exc)) from exc
    task_id = None if loaded is None else loaded.get("id")
    return EpisodePlan(
        options=options,
        task=loaded,
        task_id=None if task_id is None else str(task_id),
        keep_frames=given.get("keep_frames", False),
        reuse_frames=given.get("reuse_frames", True),
        reading=as_reading(given.get("actions"), given.get("coordinates")) or reading,
        recorder=given.get("record"),
        think_s_per_token=per_token_s,
    )


def _same(value: Any) -> Any:
    return value
