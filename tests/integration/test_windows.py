"""Windows of special kinds in a real replica: what the list says of them, and what reaches them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from benchmarks.desktop_fidelity.__main__ import served
from benchmarks.desktop_fidelity.stage import Stage
from benchmarks.desktop_fidelity.windows import CHECKS, KINDS, SpecialWindow, activate

pytestmark = [pytest.mark.desktop, pytest.mark.timeout(300)]
BY_NAME = {kind.name: kind for kind in KINDS}


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    """One replica for all tests."""
    with served("small") as stage:
        yield stage


@pytest.mark.parametrize("name", ["normal", "modal", "other-workspace", "above", "minimised", "shaded"])
def test_the_list_says_what_state_a_window_is_in(stage: Stage, name: str) -> None:
    """Modal, always on top, and what does not show: on another workspace, minimised or rolled up."""
    kind = BY_NAME[name]
    with SpecialWindow(stage, kind) as shown:
        CHECKS["geometry"](stage, shown, kind)
        CHECKS["state"](stage, shown, kind)


@pytest.mark.parametrize("name", ["unicode-title", "old-title", "utf8-wm-name"])
def test_a_title_is_read_in_its_encoding(stage: Stage, name: str) -> None:
    """In UTF-8 also where only the old property has it."""
    kind = BY_NAME[name]
    with SpecialWindow(stage, kind) as shown:
        CHECKS["listed"](stage, shown, kind)
        CHECKS["close"](stage, shown, kind)


@pytest.mark.parametrize("name", ["modal", "other-workspace", "minimised", "shaded"])
def test_an_activated_window_shows_and_takes_input(stage: Stage, name: str) -> None:
    """It is brought from another workspace, from the panel, or rolled down; clicks and texts reach it."""
    kind = BY_NAME[name]
    with SpecialWindow(stage, kind) as shown:
        activate(stage, shown)
        CHECKS["activate"](stage, shown, kind)
        assert shown.listed()["visible"]
        CHECKS["click"](stage, shown, kind)
        CHECKS["type"](stage, shown, kind)
