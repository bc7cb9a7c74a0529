"""Policies of `osgym eval run --agent`: an agent of the SDK by its name, or one that a module makes."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from osgym_sdk import ConfigError
from osgym_sdk.agents import PROMPTS, Agent, AnthropicAgent, ChatAgent, GeminiAgent, OpenAIAgent

AGENTS: dict[str, type[Agent]] = {
    "openai": OpenAIAgent,
    "anthropic": AnthropicAgent,
    "gemini": GeminiAgent,
    "chat": ChatAgent,
}
PROMPT_NAMES = tuple(PROMPTS)


def arguments(pairs: Sequence[str]) -> dict[str, Any]:
    """Parse arguments ``name=value``; a value is JSON, else text.

    Raises:
        click.UsageError: One has no name or no ``=``, or names a secret.
    """
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, written = pair.partition("=")
        if not equals or not name.isidentifier():
            raise click.UsageError(f"--agent-arg {pair[:60]!r} is not name=value")
        if "key" in name or "token" in name.split("_"):
            raise click.UsageError(
                f"--agent-arg {name}: put the key into the environment, since arguments are written to --out"
            )
        try:
            found[name] = json.loads(written)
        except ValueError:
            found[name] = written
    return found


def make_policy(agent: str, given: Mapping[str, Any]) -> Any:
    """Make the policy.

    Args:
        agent: Name in `AGENTS`, or ``module:factory``.
        given: Arguments of the agent's class or factory.

    Raises:
        click.UsageError: There is no such agent, or it takes no such arguments.
    """
    make: Any = AGENTS.get(agent)
    if make is None:
        make = imported(agent, "--agent", [*AGENTS, "module:factory"])
    elif "model" not in given:
        raise click.UsageError(f"--agent {agent} needs --model")
    elif agent == "chat" and "prompt" not in given:
        raise click.UsageError(f"--agent chat needs --prompt: one of {', '.join(PROMPT_NAMES)}")
    try:
        return make(**given)
    except ConfigError as exc:
        raise click.UsageError(f"--agent {agent}: {exc}") from exc
    except TypeError as exc:
        raise click.UsageError(f"--agent {agent} does not take these arguments: {exc}") from exc


def imported(named: str, option: str, forms: Iterable[str]) -> Any:
    """Import the object ``module:name``; modules of the current folder are found, too.

    Args:
        option: Name of the option, for messages.
        forms: Values that the option takes, for messages.

    Raises:
        click.UsageError: The text has another form, or nothing has this name.
    """
    module, colon, name = named.partition(":")
    if not colon or not module or not name.isidentifier():
        raise click.UsageError(f"{option} must be one of {', '.join(forms)}, not {named[:60]!r}")
    here = str(Path.cwd())
    if here not in sys.path:  # as `python -m` has it
        sys.path.insert(0, here)
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as exc:
        raise click.UsageError(f"{option} {named}: {exc}") from exc
