"""Gymnasium environments over real desktops; importing this registers ``osgym/Desktop-v0``.

>>> import gymnasium, osgym_sdk.gym
>>> env = gymnasium.make("osgym/Desktop-v0", hosts="http://127.0.0.1:20000")  # doctest: +SKIP
>>> envs = gymnasium.make_vec("osgym/Desktop-v0", num_envs=3)  # doctest: +SKIP

Needs ``pip install 'osgym-sdk[gym]'``.
"""

from __future__ import annotations

from osgym_sdk._extras import need_extra

need_extra("gym", "gymnasium", "numpy")

import gymnasium as _gymnasium  # noqa: E402 - after the check, whose error names the extra

from osgym_sdk.gym.actions import KEYS, OPS, ActionForm, DictActions, DiscreteActions, TextActions  # noqa: E402 - as above
from osgym_sdk.gym.desktop_env import DesktopEnv  # noqa: E402 - the same
from osgym_sdk.gym.vector_env import DesktopVectorEnv  # noqa: E402 - the same

ENV_ID = "osgym/Desktop-v0"

__all__ = [
    "ENV_ID",
    "KEYS",
    "OPS",
    "ActionForm",
    "DesktopEnv",
    "DesktopVectorEnv",
    "DictActions",
    "DiscreteActions",
    "TextActions",
]

if ENV_ID not in _gymnasium.registry:
    _gymnasium.register(
        ENV_ID,
        entry_point="osgym_sdk.gym.desktop_env:DesktopEnv",
        vector_entry_point="osgym_sdk.gym.vector_env:DesktopVectorEnv",
        nondeterministic=True,  # real desktops have clocks, and programs that take their time
    )
