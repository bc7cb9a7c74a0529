"""Calls policies, so that nothing that one does reaches beyond its own episode."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from osgym_sdk._daemon import DaemonThread, Outcome
from osgym_sdk._exceptions import ConfigError, InvalidAction, OSGymError
from osgym_sdk._inputs.actions import Action, Actions, as_actions
from osgym_sdk._inputs.decision import Decision, opened
from osgym_sdk._models.evaluation import Failure
from osgym_sdk.wire import ErrorClass

MAX_TRACEBACK_CHARS = 8000

Decided = Actions | Decision | None
PolicyFunction = Callable[[Any, Any, int], Decided | Awaitable[Decided]]


@runtime_checkable
class PolicyObject(Protocol):
    """A policy with a state. It may also have ``reset(task)``, called before each episode.

    What ``reset`` returns, unless None, acts in that episode: episodes run at the same time, so a
    policy that remembers anything returns one object per episode.
    """

    def act(self, obs: Any, task: Any, step: int) -> Decided | Awaitable[Decided]:
        """The next action or actions, or a :class:`Decision`; None ends the episode."""


Policy = PolicyFunction | PolicyObject


@dataclass(frozen=True, slots=True)
class ReadDecision:
    """Output of a policy as it was read: ``actions`` that can be sent, or the reason why there are none.

    Both are None where the policy ends the episode.
    """

    actions: tuple[Action, ...] | None
    info: Any
    refusal: InvalidAction | None = None
    note: str = ""
    think_s: float | None = None

    def decision(self) -> Decision:
        """Return it as it is sent."""
        return Decision(self.actions, self.info, self.note, self.think_s)


Act = Callable[[Any, Any, int], Awaitable[ReadDecision]]


def check_policy(policy: Any) -> None:
    """Check that something can be called as a policy.

    Raises:
        ConfigError: it is neither a callable nor an object with ``act``.
    """
    if not isinstance(policy, PolicyObject) and not callable(policy):
        text = (
            "a policy must be a callable, or an object with act(obs, task, step), not "
            f"{type(policy).__name__}"
        )
        raise ConfigError(text)


class PolicyError(Exception):
    """The policy raised; ``failure`` is what its episode ends with. Never leaves the SDK."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(type(error).__name__)
        trace = "".join(traceback.format_exception(error))
        details = {"traceback": trace[-MAX_TRACEBACK_CHARS:]}
        text = f"{type(error).__name__}: {_text_of(error)}"
        self.failure = Failure("policy_error", text, ErrorClass.MODEL, details, error)


class PolicyRunner:
    """Calls a policy for one episode at a time: coroutines on the loop, plain functions in a thread.

    An abandoned call (after the episode's deadline or the batch's end) is not awaited: a plain function
    that never returns keeps its thread, and the next episode gets another.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._thread: DaemonThread | None = None
        self._left: set[asyncio.Task[Outcome]] = set()
        """Cancelled calls that have not ended yet."""

    async def begin(self, task: Any) -> Act:
        """Return the function that acts in one episode: what it gives can be sent.

        It raises as below.

        Raises:
            PolicyError: ``reset`` raised, or what it returned is no policy.
            OSGymError: an infrastructure failure that the policy ran into.
        """
        policy = self._policy
        context = contextvars.copy_context()
        reset = getattr(policy, "reset", None)
        if reset is not None:
            own = await self._invoke(context, _same, reset, task)
            policy = policy if own is None else own
        try:
            check_policy(policy)
        except ConfigError as exc:
            raise PolicyError(exc) from exc
        act = policy.act if isinstance(policy, PolicyObject) else policy

        async def call(obs: Any, task: Any, step: int) -> ReadDecision:
            try:
                decision: ReadDecision = await self._invoke(context, _decided, act, obs, task, step)
            except InvalidAction as exc:
                return ReadDecision(None, exc.info, exc)
            return decision

        return call

    def close(self) -> None:
        """Let the thread end; one that still runs a policy is not waited for."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.close()

    async def _invoke(
        self,
        context: contextvars.Context,
        convert: Callable[[Any], Any],
        function: Callable[..., Any],
        *args: Any,
    ) -> Any:
        if _is_coroutine_function(function):
            outcome = await self._awaited(context, _call(function, *args))
        else:
            outcome = await self._in_thread(convert, function, args)
            if outcome.error is None and inspect.isawaitable(outcome.value):
                outcome = await self._awaited(context, _wait_for(outcome.value))
            elif outcome.error is None:
                return outcome.value
        if outcome.error is None:
            outcome = _called(convert, outcome.value)
        if outcome.error is None:
            return outcome.value
        if isinstance(outcome.error, InvalidAction) or (
            isinstance(outcome.error, OSGymError)
            and outcome.error.error_class in (ErrorClass.INFRA, ErrorClass.POLICY)
        ):
            raise outcome.error
        raise PolicyError(outcome.error) from outcome.error

    async def _in_thread(
        self, convert: Callable[[Any], Any], function: Callable[..., Any], args: tuple[Any, ...]
    ) -> Outcome:
        if self._thread is None:
            self._thread = DaemonThread("osgym-policy")
        try:
            return await self._thread.call(lambda: _called_in_thread(convert, function, args))
        except BaseException:
            self.close()  # it may never return
            raise

    async def _awaited(self, context: contextvars.Context, work: Coroutine[Any, Any, Any]) -> Outcome:
        """Await the policy in a task of its own: neither can it cancel ours, nor hold it when we are."""
        task = asyncio.create_task(_caught(work), name="osgym-policy", context=context)
        try:
            await asyncio.wait((task,))
        except BaseException:
            task.cancel()
            self._left.add(task)
            task.add_done_callback(self._left.discard)
            raise
        if task.cancelled():
            return Outcome(error=asyncio.CancelledError("the policy was not cancelled by the batch"))
        return task.result()


def _decided(decision: Any) -> ReadDecision:
    actions, info = opened(decision)
    note, think_s = (decision.note, decision.think_s) if isinstance(decision, Decision) else ("", None)
    try:
        read = None if actions is None else as_actions(actions)
        return ReadDecision(read, info, note=note, think_s=think_s)
    except InvalidAction as exc:
        return ReadDecision(None, info, exc)


def _same(value: Any) -> Any:
    return value


def _called(function: Callable[..., Any], *args: Any) -> Outcome:
    try:
        return Outcome(function(*args))
    except Exception as exc:  # noqa: BLE001 - the user's code: its fault is data here
        return Outcome(error=exc)


def _called_in_thread(
    convert: Callable[[Any], Any], function: Callable[..., Any], args: tuple[Any, ...]
) -> Any:
    """Call the policy and look at what it gave, all in its thread."""
    value = function(*args)
    return value if inspect.isawaitable(value) else convert(value)


async def _caught(work: Coroutine[Any, Any, Any]) -> Outcome:
    """Await; SystemExit would end the loop, and with it all episodes."""
    try:
        return Outcome(await work)
    except (asyncio.CancelledError, KeyboardInterrupt):
        raise
    except BaseException as exc:  # noqa: BLE001 - the same
        return Outcome(error=exc)


async def _call(function: Callable[..., Awaitable[Any]], *args: Any) -> Any:
    return await function(*args)


async def _wait_for(work: Awaitable[Any]) -> Any:
    return await work


def _is_coroutine_function(function: Any) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - asks whether an instance is awaited
    )


def _text_of(error: BaseException) -> str:
    try:
        return str(error)[:2000]
    except Exception:  # noqa: BLE001 - an exception of the user's may do anything
        return "(no message)"
