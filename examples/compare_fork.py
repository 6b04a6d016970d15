"""What if it had been Osaka? Fork the conversation at its first turn, ask the same there, and compare."""

from after import QUESTIONS, conversation, turn

import clew

with clew.open("trip.db") as db:
    tokyo = conversation(db)
    start = tokyo.history()[-1]

    name = f"osaka-{len(tokyo.branches)}"
    osaka = tokyo.fork(start, branch=name, update={"messages": []})
    print(f"Branch {name} starts at step {start.step} of {tokyo.id}; nothing was copied.")

    for question in QUESTIONS:
        text = question.replace("Tokyo", "Osaka")
        print(f"> {text}\n  {turn(osaka, text)}")

    print("\nBranches and their heads:", osaka.branches)
    print(f"\nFrom {tokyo.branch} to {name}:")
    print(tokyo.diff("main", name))
