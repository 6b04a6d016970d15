"""Another process, perhaps a week later: what do agents ask? It says yes to all of it. In a shell: `clew inbox`."""

import clew

with clew.open("booking.db") as db:
    for request in db.requests():
        print(f"{request.id} of {request.thread_id}: {request.question}")
        print(f"  the state that it was asked in: {request.state()['euros']} €")
        request.answer(True, by="anna", reason="within budget")
        print(f"  {request.id} is answered by {request.audit()[0].by}")
    if not db.requests(status="answered"):
        print("Nothing was ever asked. Run agent.py first.")
