"""Lanes: any forest of checkpoints is drawn so that each node hangs on its parent."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from clew.cli.graph import Lanes


def drawing(parents: dict[int, int | None], first: int | None = None, *, ascii_only: bool = False) -> list[str]:
    lanes = Lanes(first, ascii_only=ascii_only)
    lines = []
    for step in sorted(parents, reverse=True):
        drawn = lanes.draw(step, parents[step])
        lines += [line for line in (drawn.meeting, drawn.node) if line is not None]
    return lines


def test_a_line():
    assert drawing({3: 2, 2: 1, 1: None}) == ["●", "●", "●"]


def test_the_first_lane_is_kept_for_main():
    assert drawing({5: 3, 4: 3, 3: None}, first=4) == ["  ●", "● │", "├─╯", "●"]


def test_main_behind_its_fork_starts_where_the_fork_left():
    assert drawing({5: 4, 4: 3, 3: None}, first=3) == ["  ●", "  ●", "╭─╯", "●"]


def test_three_lanes_meet_in_one():
    assert drawing({5: 2, 4: 2, 3: 2, 2: None}) == ["●", "│ ●", "│ │ ●", "├─┴─╯", "●"]


def test_a_lane_is_crossed():
    assert drawing({6: 4, 5: 1, 4: 2, 3: 2, 2: 1, 1: None}) == [
        "●",
        "│ ●",
        "● │",
        "│ │ ●",
        "├─│─╯",
        "● │",
        "├─╯",
        "●",
    ]


def test_in_ascii():
    assert drawing({5: 3, 4: 3, 3: None}, ascii_only=True) == ["*", "| *", "|-'", "*"]


def test_a_free_lane_is_used_again():
    assert drawing({6: 4, 5: None, 4: 1, 3: 1, 1: None}) == ["●", "│ ●", "●", "│ ●", "├─╯", "●"]


@st.composite
def forests(draw: st.DrawFn) -> tuple[dict[int, int | None], int]:
    count = draw(st.integers(1, 14))
    parents = {step: draw(st.none() | st.integers(1, step - 1)) if step > 1 else None for step in range(1, count + 1)}
    return parents, draw(st.integers(1, count))


@settings(max_examples=200, deadline=None)
@given(forests())
def test_every_line_leads_from_a_child_down_to_its_parent(forest):
    parents, first = forest
    lanes = Lanes(first)
    at: dict[int, int] = {}
    for step in sorted(parents, reverse=True):
        drawn = lanes.draw(step, parents[step])
        assert drawn.node.count("●") == 1
        at[step] = drawn.node.index("●")
        for child in (child for child, parent in parents.items() if parent == step):
            assert at[child] == at[step] or (drawn.meeting is not None and drawn.meeting[at[child]] in "┴╯")
        if drawn.meeting is not None:
            assert drawn.meeting[at[step]] in "├╭"
        open_lanes = {parent for child, parent in parents.items() if child >= step and parent and parent < step}
        assert drawn.below.count("│") >= len(open_lanes) - 1  # main's own lane may not have begun
