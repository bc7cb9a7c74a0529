"""What the demo shows of an oracle: the screen that is final, not the one that was answered first."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from osgym_cli.demo.play import Actor as DemoActor
from osgym_cli.demo.play import Play, PolicyName, make_plays
from osgym_host.tasks.shipped import load_shipped

(TASK,) = (task for task in load_shipped() if task.name == "mousepad/write-note")


@dataclass
class Seen:
    """An observation, and the one that comes later."""

    data: bytes
    asked: int = 0

    async def final(self) -> Seen:
        """The frame at rest."""
        self.asked += 1
        return Seen(self.data + b", at rest")


async def shown_before_the_end(play: Play) -> tuple[bytes, list[int]]:
    """Act through a play; return the frame that it keeps before its last step, and who was waited for."""
    actor = DemoActor(play, lambda _: None)
    frames = [Seen(f"frame {step}".encode()) for step in range(len(play.steps))]
    for step, frame in enumerate(frames):
        assert await actor.act(frame, None, step) == play.steps[step]
    assert play.last is not None
    return play.last.read_bytes(), [frame.asked for frame in frames]


async def test_an_oracle_waits_for_the_last_screen(tmp_path: Path) -> None:
    """And for those that its file says; chance waits for none."""
    by_oracle, by_chance = make_plays([TASK], tmp_path, 0, (1920, 1080))
    assert (by_oracle.policy, by_chance.policy) == (PolicyName.ORACLE, PolicyName.RANDOM)
    last, asked = await shown_before_the_end(by_oracle)
    assert last == f"frame {len(asked) - 1}, at rest".encode()
    certain = [False, *(step.certain for step in TASK.oracle[:-1])]
    assert asked == [int(certain[step] or step == len(asked) - 1) for step in range(len(asked))]
    last, asked = await shown_before_the_end(by_chance)
    assert last == f"frame {len(asked) - 1}".encode()
    assert not any(asked)
