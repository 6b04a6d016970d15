"""A second turn, in another process, a week later or whenever you run it: the thread is found by its id alone."""

from datetime import UTC, datetime

from after import turn

import clew

with clew.open("trip.db") as db:
    thread = db.thread(clew.thread_id(user="anna", trip=7))
    last = thread.head
    if last is None:
        raise SystemExit("Nothing is in trip.db yet. Run after.py first.")
    ago = datetime.now(UTC) - last.created_at
    print(
        f"The last turn was {ago.total_seconds():.0f} seconds ago, in another process: step {last.step}, {last.label!r}"
    )

    text = "Which city was it, and for how many days?"
    print(f"> {text}\n  {turn(thread, text)}")

    print(f"Now the thread is at step {thread.head.step}. What this turn changed:")
    print(thread.diff("~1", "head"))
