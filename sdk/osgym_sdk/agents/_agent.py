"""What all agents share: one conversation for each episode, from an observation to a decision and back."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Self

from osgym_protocol.grammars import Call, Ending, Parsed, UnreadableAction
from osgym_protocol.grammars.calls import calls_of
from osgym_sdk._exceptions import ConfigError, InvalidAction, ModelError
from osgym_sdk._inputs.decision import Decision
from osgym_sdk._inputs.options import as_task
from osgym_sdk._inputs.reading import Reading
from osgym_sdk._models.observation import Observation
from osgym_sdk.agents._server import ModelServer, Reply
from osgym_sdk.agents._turn import Turn, Usage
from osgym_sdk.agents._zoom import MAX_LOOKS, only_looks, take_zooms
from osgym_sdk.wire import ObserveOptions

INFEASIBLE = "[INFEASIBLE]"
"""Word for a task that cannot be done, for models that have none of their own."""
SYSTEM = (
    "You operate a Linux desktop for the user by looking at screenshots of it and by acting with the mouse "
    "and the keyboard. Nobody is there to answer questions: do the whole task yourself, and check on the "
    "screen that it is done. When it is done, say so in a short message, with the answer if the task asks "
    "for one. If the task cannot be done on this computer, end with a message that contains "
    f"{INFEASIBLE}."
)
"""The instructions of the agents whose models have no published prompt."""
UNACKNOWLEDGED = (
    "the provider wants safety checks acknowledged before this is done: details['checks'] has them, and "
    "acknowledge_safety_checks=True acknowledges all"
)


def instruction_of(task: Any) -> str:
    """Return what a task asks for.

    Raises:
        ConfigError: it has no instruction, or its file cannot be read.
    """
    loaded = as_task(task)
    text = None if loaded is None else loaded.get("instruction")
    if not isinstance(text, str) or not text.strip():
        raise ConfigError("the task has no instruction for the model; add the field instruction")
    return text


class Agent(ABC):
    """A model that acts: a policy for :meth:`Client.run`, one for any number of episodes at once.

    What belongs to an episode is in what :meth:`reset` returns and goes with it. Use ``async with``, or
    :meth:`aclose`, to close the connections to the model's API.

    Attributes:
        usage: tokens and time of all its episodes so far.
        observe: the image that suits the model: hand it to ``client.run(..., observe=agent.observe)``.
    """

    observe: ObserveOptions | None = None

    def __init__(self, server: ModelServer) -> None:
        self._server = server
        self.usage = Usage()

    @abstractmethod
    def reset(self, task: Any) -> Conversation:
        """Return what acts in one episode.

        Raises:
            ConfigError: the task has no instruction.
        """

    async def act(self, obs: Observation, task: Any, step: int) -> Decision:
        """Not called by the SDK: an episode has an actor of its own.

        Raises:
            ConfigError: always.
        """
        raise ConfigError("call agent.reset(task) for each episode, then act() of the object that it returns")

    async def aclose(self) -> None:
        """Close the connections of this event loop. Idempotent; the agent can be used again."""
        await self._server.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()


class ComputerToolAgent(Agent):
    """An agent whose model has its provider's own computer tool.

    Attributes:
        model: the model's name.
        tool: version of the tool.
        images: how many of the newest screenshots are sent again; None: all.
        system: instructions; empty: none.
        extra: more fields of each request.
    """

    def __init__(
        self,
        server: ModelServer,
        *,
        model: str,
        tool: str,
        images: int | None,
        system: str | None,
        extra: Mapping[str, Any] | None,
    ) -> None:
        super().__init__(server)
        self.model, self.tool, self.images = model, tool, images
        self.system = SYSTEM if system is None else system
        self.extra = dict(extra or {})


class Conversation(ABC):
    """Conversation of an agent in one episode. ``act`` is called with each observation, in order."""

    _acknowledges = True
    """True: calls with safety checks are carried out, and the checks acknowledged."""

    def __init__(self, server: ModelServer, total: Usage, reading: Reading, instruction: str) -> None:
        self._server = server
        self._total = total
        self._reading = reading
        self.instruction = instruction
        self._calls: tuple[Call, ...] | None = None
        """The calls that the next request answers; None before the first answer."""
        self._unread: str | None = None
        """Reason why the last answer was no action."""
        self._zooms: dict[str, bytes] = {}
        """Images of the zooms that calls asked for, by their ids."""

    async def act(self, obs: Observation, task: Any, step: int) -> Decision:
        """Ask the model what to do.

        Returns:
            The actions, and as ``info`` what the model said, thought and cost (see ``docs/agents.md``).

        Raises:
            ModelError: its API gave no usable answer.
            InvalidAction: what it said is no action; the next call tells it so. Its ``info`` is what the
                decision would have had.
        """
        error = obs.refused or self._unread
        looks: list[dict[str, Any]] = []
        shown = obs
        while True:
            self._zooms = {} if error else await take_zooms(obs, self._calls or ())
            decision = await self._decide(shown, error, looks)
            if decision is not None:
                return decision
            error, shown = None, _told(obs)

    async def _decide(
        self, obs: Observation, error: str | None, looks: list[dict[str, Any]]
    ) -> Decision | None:
        """Ask the model once; None: it only looks, which is answered without a step.

        Args:
            obs: what it is told.
            error: why nothing was done of the last answer.
            looks: infos of the answers before in which it only looked; this one is added.
        """
        path, body = self._request(obs, error)
        reply = await self._server.post(path, body)
        turn = self._turn(reply)
        info = turn.info(reply)
        self._total.add(Usage.from_dict(info["usage"]))
        self._keep(turn)
        self._unread = None
        self._calls = _calls_in(turn.output)
        if turn.declined:
            return Decision([{"op": "done"}], _with_looks(info, looks), turn.words)
        try:
            if turn.cut:
                raise InvalidAction("the answer was cut off at max_tokens; answer more briefly")
            parsed = self._reading.parse(turn.output, obs)
        except InvalidAction as exc:
            self._unread = exc.message
            exc.info = _with_looks(info, looks)
            raise
        checks = _checks(parsed.calls)
        if checks and not self._acknowledges:
            raise ModelError(UNACKNOWLEDGED, code=ModelError.SAFETY, details={"checks": checks})
        self._calls = parsed.calls
        if only_looks(parsed) and len(looks) < MAX_LOOKS:
            looks.append(info)
            return None
        info["ending"] = None if parsed.ending is None else parsed.ending.value
        return Decision(_actions(parsed), _with_looks(info, looks), turn.words)

    @abstractmethod
    def _request(self, obs: Observation, error: str | None) -> tuple[str, Mapping[str, Any]]:
        """Return path and body of the next request: all that was said, and what is seen now.

        Args:
            error: why nothing was done of the last answer.
        """

    @abstractmethod
    def _turn(self, reply: Reply) -> Turn:
        """Return what an answer holds. Raises ModelError if it is not the API's."""

    @abstractmethod
    def _keep(self, turn: Turn) -> None:
        """Take an answer into the history."""

    def _not_the_apis(self, what: str) -> ModelError:
        """Return the error for an answer of the wrong form."""
        return ModelError(f"the answer {what}", code=ModelError.PROTOCOL, host=self._server.base_url)


def leave_out(kept: int | None, images: Iterable[Callable[[], None]]) -> None:
    """Leave images out of a history but for the newest.

    Args:
        kept: Number of images that stay; None: all.
        images: For each image, the newest first, the function that leaves it out.
    """
    if kept is not None:
        for leave in itertools.islice(images, kept, None):
            leave()


def _told(obs: Observation) -> Observation:
    """Return an observation without what its step did, of which the model knows already."""
    meta = replace(obs.meta, results=(), failed_index=None)
    return Observation(replace(obs.answer, observation=meta), obs.data, obs.timing)


def _with_looks(info: dict[str, Any], looks: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the info of a step: with the answers before that only looked, and what they cost."""
    if not looks:
        return info
    usage = Usage()
    for one in (*looks, info):
        usage.add(Usage.from_dict(one["usage"]))
    return {**info, "usage": usage.to_dict(), "looks": looks}


def _actions(parsed: Parsed) -> list[dict[str, Any]]:
    """Return the actions of the step; a message that says that the task cannot be done ends it so."""
    if parsed.ending is Ending.ANSWER and INFEASIBLE in parsed.text:
        return [*parsed.actions, {"op": "fail"}]
    return parsed.for_step()


def _calls_in(output: Any) -> tuple[Call, ...]:
    try:
        return calls_of(output)
    except UnreadableAction:
        return ()


def _checks(calls: tuple[Call, ...]) -> list[dict[str, Any]]:
    return [dict(check) for call in calls for check in call.safety][:10]
