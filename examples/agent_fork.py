"""What if it were Osaka? The trip is forked before its first node, runs there beside the first, and is compared."""

from agent import booking, tell

import clew

with clew.open("booking.db") as db:
    tokyo = db.thread("trip-8")
    if not tokyo.history():
        raise SystemExit("Nothing is in booking.db yet. Run agent.py first.")
    start = tokyo.history()[-1]

    name = f"osaka-{len(tokyo.branches)}"
    osaka = tokyo.fork(start, branch=name, update={"city": "Osaka"})
    tell(booking.resume(osaka))  # nodes run anew on a fork; it asks for itself, and has paid nothing

    print(f"\nFrom main to {name}:")
    print(tokyo.diff("main", name))
