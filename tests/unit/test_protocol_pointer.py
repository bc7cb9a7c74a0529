"""The motions of a drag, and how far clicks are apart."""

from __future__ import annotations

from itertools import groupby, pairwise

from hypothesis import given
from hypothesis import strategies as st

from osgym_protocol.pointer import ARRIVAL_PX, DRAG_START_PX, drag_motions, separation_s

POINT = st.tuples(st.integers(0, 3840), st.integers(0, 2160))


def _is_on(point: tuple[int, int], start: tuple[int, int], end: tuple[int, int]) -> bool:
    """Whether a point is at most a pixel beside a line."""
    dx, dy = end[0] - start[0], end[1] - start[1]
    length = max(abs(dx), abs(dy), 1)
    off = abs((point[0] - start[0]) * dy - (point[1] - start[1]) * dx) / length
    return off <= 2 and all(
        min(a, b) <= value <= max(a, b) for a, b, value in zip(start, end, point, strict=True)
    )


@given(st.lists(POINT, min_size=2, max_size=6))
def test_all_motions_lie_on_the_path_and_the_last_is_its_end(path: list[tuple[int, int]]) -> None:
    """No easing, nothing beside the path; every point of it is touched, in order."""
    motions = drag_motions(path)
    points = [point for point, _ in motions]
    assert points[-1] == path[-1]
    left = iter(points)
    assert all(any(seen == corner for seen in left) for corner, _ in groupby(path[1:]))
    segments = list(pairwise(path))
    assert all(any(_is_on(point, *segment) for segment in segments) for point in points)


@given(POINT, POINT)
def test_a_drag_never_goes_back(start: tuple[int, int], end: tuple[int, int]) -> None:
    """Each motion of a straight drag is nearer to the end than the one before."""
    left = [max(abs(end[0] - x), abs(end[1] - y)) for (x, y), _ in drag_motions([start, end])]
    assert left == sorted(left, reverse=True)


def test_the_applications_are_waited_for_where_they_have_to_follow() -> None:
    """After the first motion, past every threshold, and at several over the target."""
    motions = drag_motions([(0, 0), (500, 0), (500, 400)])
    assert motions[0] == ((DRAG_START_PX, 0), True) and motions[1] == ((500, 0), False)
    assert motions[2:] == [((500, 400 - before), True) for before in ARRIVAL_PX]


def test_a_short_drag_has_the_motions_that_fit() -> None:
    """Also one that does not move at all."""
    assert drag_motions([(5, 5), (9, 5)]) == [((9, 5), True)]
    assert drag_motions([(5, 5), (5, 5)]) == [((5, 5), True)]
    assert drag_motions([(0, 0), (16, 0)]) == [((12, 0), True), ((13, 0), True), ((16, 0), True)]


def test_only_presses_on_one_place_soon_after_each_other_are_separated() -> None:
    """Nobody waits for a click that cannot be a double click."""
    assert separation_s(0.1, (5, 5), (9, 5)) == 0.52 - 0.1
    assert separation_s(0.0, (5, 5), (5, 16)) == 0.0
    assert separation_s(0.6, (5, 5), (5, 5)) == 0.0
