"""Words that are left in a run's row, for whoever drives it."""

from __future__ import annotations

UNDO, ROLL_BACK = "undo", "roll back"
"""The words of a run whose effects are being undone, to be cancelled or rolled back then. They were heard: a run that
waits with one is not due because of it."""
STRENGTH: dict[str | None, int] = {
    None: 0,
    "inject": 1,
    "pause": 2,
    "cancel": 3,
    "interrupt": 3,
    "compensate": 4,
    "rollback": 5,
    UNDO: 6,
    ROLL_BACK: 7,
}
"""Word that is left replaces what is weaker."""
