"""verl: a desktop as an agent loop, one rollout for each sample of a batch.

>>> import osgym_sdk.integrations.verl  # registers the agent loop osgym

In a configuration: ``actor_rollout_ref.rollout.agent.agent_loop_config_path=loops.yaml`` with::

    - name: osgym
      _target_: osgym_sdk.integrations.verl.DesktopAgentLoop
      hosts: http://127.0.0.1:20000
      sees: image
      size: [1280, 720]
      max_steps: 30

Needs ``pip install 'osgym-sdk[verl]'``.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from osgym_sdk._environment import EnvironmentOptions
from osgym_sdk._exceptions import ConfigError
from osgym_sdk._extras import need_extra
from osgym_sdk.integrations import _rollouts
from osgym_sdk.integrations._desktop import Desktop

need_extra("verl", "verl")

from verl.experimental.agent_loop.agent_loop import (  # noqa: E402 - after the check, whose error names the extra
    AgentLoopBase,
    AgentLoopMetrics,
    AgentLoopOutput,
    register,
)
from verl.utils.profiler import simple_timer  # noqa: E402 - the same

__all__ = ["AGENT_NAME", "DesktopAgentLoop", "rows"]

AGENT_NAME = "osgym"
_LOG = logging.getLogger("osgym.sdk")


def rows(tasks: Any) -> list[dict[str, Any]]:
    """Return the rows of a verl data set: write them to Parquet for ``data.train_files``.

    Args:
        tasks: as for :meth:`osgym_sdk.Client.run`.

    Raises:
        ConfigError: there are none, or one is wrong.
    """
    return [
        {
            "data_source": AGENT_NAME,
            "agent_name": AGENT_NAME,
            "prompt": [
                {"role": "system", "content": _rollouts.HOW_TO_ACT},
                {"role": "user", "content": _rollouts.instruction_of(task)},
            ],
            "reward_model": {
                "style": "rule",
                "ground_truth": "",
            },  # the desktop scores, no function of verl's
            "extra_info": {"index": place, "task": text},
        }
        for place, (task, text) in enumerate(_rollouts.rows(tasks))
    ]


@dataclass(slots=True)
class _Transcript:
    """Conversation so far, as messages and as tokens."""

    messages: list[dict[str, Any]]
    ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    """Mask of the tokens after the prompt: 1 where the model said them."""
    logprobs: list[float] | None = None
    images: list[Any] = field(default_factory=list)
    turns: int = 1
    times_s: dict[str, float] = field(default_factory=dict)


@register(AGENT_NAME)
class DesktopAgentLoop(AgentLoopBase):  # type: ignore[misc,unused-ignore] # theirs has no types
    """One rollout: the model sees the desktop, says an action, sees what came of it.

    verl has no reward that is absent. A rollout whose desktop was lost is played again from the start on a
    fresh one, ``retries`` times. One that is lost for good has the reward 0, no token that counts (its
    response mask is 0, so that nothing is learned of it) and ``extra_fields["valid"]`` False; its 0 still
    stands in the mean of its group.
    """

    def __init__(
        self,
        *args: Any,
        hosts: Any = None,
        sees: str = "image",
        max_steps: int = 30,
        retries: int = 1,
        tools: Any = None,
        name: str = AGENT_NAME,
        **given: Any,
    ) -> None:
        """Lease nothing yet; verl makes one for each rollout.

        Args:
            hosts: as for :class:`osgym_sdk.Client`; ``OSGYM_HOSTS`` by default.
            sees: ``image``, for vision-language models, or ``elements``: what is on the screen, as text.
            max_steps: actions of one rollout.
            retries: how often a rollout whose desktop was lost is played again.
            tools, name: verl's; they are not used.
            given: ``actions``, ``size``, ``wait_s``, ... and what verl's own base wants.

        Raises:
            ConfigError: an argument is wrong.
        """
        theirs = ("trainer_config", "server_manager", "tokenizer", "processor", "dataset_cls", "data_config",
                  "hf_model_type")  # fmt: skip
        super().__init__(*args, **{name: given.pop(name) for name in theirs if name in given})
        if max_steps < 1 or retries < 0:
            raise ConfigError("max_steps must be 1 or more, retries 0 or more")
        self._sees, self._retries = sees, retries
        self._hosts = hosts if hosts is None or isinstance(hosts, str) else list(hosts)
        if given.get("size") is not None:
            width, height = given["size"]
            given["size"] = (int(width), int(height))
        self._options = _rollouts.text_options(sees, max_steps=max_steps, **given)
        EnvironmentOptions.read(self._options)
        self._response_tokens = int(self.rollout_config.response_length)

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> AgentLoopOutput:
        """Play one row of the data set.

        Args:
            sampling_params: of the model's server.
            row: ``raw_prompt``, and ``extra_info`` with the ``task``.

        Raises:
            ConfigError: the row has no task.
        """
        task = (row.get("extra_info") or {}).get("task")
        if not task:
            raise ConfigError("extra_info['task'] is missing from the row: make rows with rows(tasks)")
        for left in reversed(range(self._retries + 1)):
            desktop = Desktop(self._hosts, **self._options)
            transcript = _Transcript([dict(message) for message in row["raw_prompt"]])
            try:
                await self._play(desktop, transcript, task, sampling_params)
            finally:
                await desktop.aclose()
            if desktop.failure is None or not left:
                break
            _LOG.warning("a rollout failed and is run again: %s", desktop.failure.message)
        return self._output(desktop, transcript)

    async def _play(
        self, desktop: Desktop, transcript: _Transcript, task: Any, sampling_params: dict[str, Any]
    ) -> None:
        with simple_timer("tool_calls", transcript.times_s):
            await desktop.begin_async(task)
        if desktop.ended:
            return
        await self._open(desktop, transcript)
        request_id = uuid4().hex
        while len(transcript.mask) < self._response_tokens:
            said = await self._generate(transcript, request_id, sampling_params)
            transcript.messages.append({"role": "assistant", "content": said})
            with simple_timer("tool_calls", transcript.times_s):
                words = await desktop.act_async(said)
            if desktop.ended or not await self._show(desktop, transcript, words):
                break
        with simple_timer("tool_calls", transcript.times_s):
            await desktop.finish_async()

    async def _open(self, desktop: Desktop, transcript: _Transcript) -> None:
        """Show the first screen in the last message of the prompt."""
        last = transcript.messages[-1]
        asked = str(last.get("content", ""))
        transcript.messages[-1] = {**last, "content": await self._screen(desktop, transcript, asked)}
        self._assert_mm_supported(bool(transcript.images))
        images = transcript.images or None
        transcript.ids = await self.ct_build_initial_tokens(transcript.messages, images=images)

    async def _generate(
        self, transcript: _Transcript, request_id: str, sampling_params: dict[str, Any]
    ) -> str:
        with simple_timer("generate_sequences", transcript.times_s):
            made = await self.server_manager.generate(
                request_id=request_id,
                prompt_ids=transcript.ids,
                sampling_params=sampling_params,
                image_data=transcript.images or None,
            )
        kept = transcript.logprobs if transcript.logprobs or made.log_probs else None
        merged, transcript.mask, transcript.logprobs = await self.ct_merge_assistant_token(
            transcript.ids,
            made.token_ids,
            transcript.mask,
            kept or ([] if made.log_probs else None),
            made.log_probs or None,
        )
        transcript.ids = merged.token_ids
        transcript.turns += 1
        said: str = self.tokenizer.decode(made.token_ids, skip_special_tokens=True)
        return said

    async def _show(self, desktop: Desktop, transcript: _Transcript, words: str) -> bool:
        """Show what came of it; False when there is no room for it."""
        before = list(transcript.messages)
        shown = len(transcript.images)
        content = await self._screen(desktop, transcript, words)
        if desktop.ended:  # it was lost while it was looked at
            return False
        transcript.messages.append({"role": "user", "content": content})
        merged, mask, logprobs = await self.ct_merge_context_msg(
            before, transcript.messages, transcript.ids, transcript.mask, transcript.logprobs
        )
        if len(mask) >= self._response_tokens:
            del transcript.images[shown:]
            return False
        transcript.ids, transcript.mask, transcript.logprobs = merged.token_ids, mask, logprobs
        transcript.turns += 1
        return True

    async def _screen(self, desktop: Desktop, transcript: _Transcript, words: str) -> Any:
        """Return the content of a message that shows the desktop: text, or text and image."""
        if self._sees == "elements":
            [said] = await desktop.shown_async("elements", words)
            return said["text"]
        assert desktop.observation is not None, "an open rollout must have an observation"
        image = desktop.observation.image
        transcript.images.append(image)
        return [{"type": "text", "text": words}, {"type": "image", "image": image}]

    def _output(self, desktop: Desktop, transcript: _Transcript) -> AgentLoopOutput:
        failure = desktop.failure
        length = len(transcript.mask)
        prompt, response = (
            transcript.ids[: len(transcript.ids) - length],
            transcript.ids[len(transcript.ids) - length :],
        )
        mask, logprobs = transcript.mask, transcript.logprobs
        if failure is not None:
            mask = [0] * length
        if not response:  # verl wants a token to put the reward on
            response, mask = [self.tokenizer.eos_token_id], [0]
            logprobs = None if logprobs is None else [0.0]
        bound = self._response_tokens
        return AgentLoopOutput(
            prompt_ids=prompt or response,
            response_ids=response[:bound],
            response_mask=mask[:bound],
            response_logprobs=None if logprobs is None else logprobs[:bound],
            multi_modal_data={"images": transcript.images} if transcript.images else {},
            reward_score=0.0 if desktop.reward is None else desktop.reward,
            num_turns=transcript.turns,
            metrics=AgentLoopMetrics(**transcript.times_s),
            extra_fields={**_counts(desktop), "failure": None if failure is None else failure.code},
        )


def _counts(desktop: Desktop) -> Mapping[str, Any]:
    return {"valid": desktop.failure is None, "steps": desktop.steps, "turn_scores": [], "tool_rewards": []}
