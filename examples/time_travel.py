"""Back three steps, change what was said there, and go on. What was left behind stays readable."""

from after import conversation, turn

import clew

with clew.open("trip.db") as db:
    thread = conversation(db)
    left = thread.head
    print(f"The head is step {left.step}: {left.label!r}")

    there = thread.rewind("~3")
    print(f"Back at step {there.step}: {there.label!r}")

    with thread.edit("5 days instead") as state:
        state["messages"][0]["content"] = state["messages"][0]["content"].replace("3 days", "5 days")
        del state["messages"][1:]

    for text in ("Plan it again.", "What will it cost?"):
        print(f"> {text}\n  {turn(thread, text)}")

    print("\nThe way that the conversation took now, newest first:")
    for checkpoint in thread.history():
        print(f"  step {checkpoint.step}  {checkpoint.label}")
    print(f"Step {left.step} is not on it, but nothing was erased. The last thing said there:")
    print(f"  {thread.state(left.step)['messages'][-1]['content']}")
