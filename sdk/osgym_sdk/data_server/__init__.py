"""OSGym's data server: multi-turn batches of prompts from many desktops, and a replay buffer.

Names, arguments and batches are those of OSGym's `examples/data_server.py`. Needs
``pip install 'osgym-sdk[data-server]'``.
"""

from __future__ import annotations

from osgym_sdk._extras import need_extra

need_extra("data-server", "numpy")

from osgym_sdk.data_server.batches import Tokenizer, collate  # noqa: E402 - after the check, whose error names the extra
from osgym_sdk.data_server.environment import OSGymEnv  # noqa: E402 - the same
from osgym_sdk.data_server.history import Prompt  # noqa: E402 - the same
from osgym_sdk.data_server.loader import MultiTurnDataloader  # noqa: E402 - the same
from osgym_sdk.data_server.replay import ReplayBuffer  # noqa: E402 - the same

__all__ = ["MultiTurnDataloader", "OSGymEnv", "Prompt", "ReplayBuffer", "Tokenizer", "collate"]
