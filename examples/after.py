"""The same loop with Clew: the conversation is in trip.db, and every turn is a checkpoint. Kill it when you like."""

from standin import MODEL, client

import clew

llm = client()
QUESTIONS = ("Plan 3 days in Tokyo.", "Find a hotel.", "What will it cost?", "Which city was it?")


def turn(thread: clew.Thread, text: str) -> str:
    with thread.edit(label=text) as state:
        messages = state.setdefault("messages", [])
        messages.append({"role": "user", "content": text})
        reply = llm.chat.completions.create(model=MODEL, messages=messages).choices[0].message.content
        messages.append({"role": "assistant", "content": reply})
    return reply


def conversation(db: clew.Database) -> clew.Thread:
    """The thread that the examples share, with all questions asked: what was answered before is not repeated."""
    thread = db.thread(clew.thread_id(user="anna", trip=7))
    asked = {checkpoint.label for checkpoint in thread.history()}
    for text in QUESTIONS:
        if text not in asked:
            print(f"> {text}\n  {turn(thread, text)}")
    return thread


if __name__ == "__main__":
    with clew.open("trip.db") as db:
        thread = conversation(db)
        print(f"\n{len(thread.state()['messages'])} messages in {thread.head.step} steps, safe in trip.db:")
        for checkpoint in reversed(thread.history()):
            print(f"  step {checkpoint.step}  {checkpoint.created_at:%d %B, %H:%M:%S}  {checkpoint.label}")
        print("Run me again: nothing is asked twice.")
