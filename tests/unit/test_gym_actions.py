"""Action spaces of the Gymnasium environments: whatever they sample, a host takes it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from osgym_protocol.actions import parse_actions
from osgym_sdk import ConfigError
from osgym_sdk._inputs.actions import as_actions
from osgym_sdk.gym import OPS, DictActions, DiscreteActions, TextActions
from osgym_sdk.gym.actions import make_form, on_screen

SCREEN = (1920, 1080)
ENDS = ("done", "fail")


def internal(actions: Any) -> list[Any]:
    """What a guest would carry out; the two ops that end an episode are the host's."""
    plain = [dict(action) for action in as_actions(actions)]  # type: ignore[arg-type] # objects, no texts
    return [one["op"] if one["op"] in ENDS else parse_actions([one], SCREEN)[0] for one in plain]


@pytest.mark.parametrize("form", [DictActions((640, 360)), DiscreteActions(16, 9)], ids=["dict", "discrete"])
def test_every_sample_is_an_action(form: Any) -> None:
    """A thousand of them, of every op."""
    form.space.seed(5)
    seen = set()
    for _ in range(1000):
        sample = form.space.sample()
        (done,) = internal(form.actions(sample, SCREEN))
        seen.add(done if isinstance(done, str) else type(done).__name__)
    assert seen >= {"done", "Wait", "Click", "Scroll", "Key"}


def test_the_dict_form_acts_on_the_screen() -> None:
    """Pixels of the observation become those of the screen, their middles."""
    form = DictActions((640, 360))
    action = {"op": OPS.index("double_click"), "at": np.array([0, 359]), "to": np.array([0, 0])}
    assert form.actions({**action, "scroll": 0, "key": 0, "text": ""}, SCREEN) == {
        "op": "click", "x": 1, "y": 1078, "count": 2,
    }  # fmt: skip
    assert on_screen((639, 359), (640, 360), SCREEN) == (1918, 1078)
    assert on_screen((1919, 1079), SCREEN, SCREEN) == (1919, 1079)


def test_the_discrete_form_says_what_it_means() -> None:
    """One meaning for each number."""
    form = DiscreteActions(4, 2)
    assert len(form.meanings) == form.space.n == len(set(form.meanings))
    assert form.meanings[0] == "click (0, 0)"
    assert form.actions(form.meanings.index("key ctrl+s"), SCREEN) == {"op": "key", "keys": ["ctrl", "s"]}
    with pytest.raises(ValueError, match="not an action"):
        form.actions(10_000, SCREEN)


def test_the_text_form_takes_any_text() -> None:
    """Also what no charset has; samples are OSGym's grammar."""
    form = TextActions()
    assert "type(Grüße ☃)" in form.space
    assert 5 not in form.space
    form.space.seed(1)
    assert {form.space.sample().split("(")[0] for _ in range(100)} == {"click", "wait"}


def test_wrong_arguments_are_config_errors() -> None:
    """Before a client is opened."""
    from osgym_sdk.gym import DesktopEnv, DesktopVectorEnv

    with pytest.raises(ConfigError, match="action_form"):
        make_form("box", (640, 360), (1, 1))
    wrong: list[dict[str, Any]] = [
        {"action_form": "x"}, {"size": (640,)}, {"max_steps": 0}, {"render_mode": "human"}, {"sise": (1, 1)},
        {"task": "no/such/task.json"}, {"on_invalid": "ignore"}, {"action_form": "discrete", "grid": (0, 1)},
    ]  # fmt: skip
    for arguments in wrong:
        with pytest.raises(ConfigError):
            DesktopEnv(**arguments)
        with pytest.raises(ConfigError):
            DesktopVectorEnv(2, **arguments)
    with pytest.raises(ConfigError):
        DesktopVectorEnv(2, autoreset_mode="Sometimes")
