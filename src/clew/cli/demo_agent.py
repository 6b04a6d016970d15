"""A small agent that survives being killed, waits for people, and pays once. `clew demo` runs it; read it, change it.

    python agent.py THREAD [--branch NAME]

Its model is a script, so that it needs no key and no network. Run it again whenever it has ended, however it has ended.
"""

import argparse
import os
import time
from pathlib import Path
from typing import Annotated, Any, TypedDict

import clew

HERE = Path(__file__).parent
PACE = 0.0
CALLS = ["understand", "find flights", "find hotels", "charge the card", "write the plan"]


class Trip(TypedDict):
    city: str
    days: int
    price: int
    booked: bool
    messages: Annotated[list[str], clew.extend]


@clew.recorded  # once it has answered, it is not called again
def model(task: str, city: str, days: int) -> str:
    work(task)
    return {
        "understand": f"{days} days in {city}.",
        "find flights": f"To {city}: 9:40 for 610 €, 13:15 for {540 if city == 'Tokyo' else 505} €.",
        "find hotels": f"In {city}: a quiet one at {95 if city == 'Tokyo' else 80} € a night.",
        "write the plan": f"Day 1: walk through {city}. Day 2: a museum and a market.",
    }[task]


@clew.effect(key=lambda _amount: "the trip")  # at most once: when nobody knows whether it was done, Clew asks
def charge(amount: int) -> str:
    work("charge the card")
    with (HERE / "charges.txt").open("a", encoding="utf-8") as bank:
        bank.write(f"{amount} €\n")
    return f"Paid {amount} €."


trip = clew.Agent("trip", state=Trip)


@trip.node(start=True, then="search")
def understand(state: Trip) -> dict[str, Any]:
    return {"messages": [model("understand", state["city"], state["days"])]}


@trip.node(then="book")
def search(state: Trip) -> dict[str, Any]:
    city, days = state["city"], state["days"]
    found = [model("find flights", city, days), model("find hotels", city, days)]
    return {"messages": found, "price": 540 + 95 * days if city == "Tokyo" else 505 + 80 * days}


@trip.node
def book(state: Trip) -> dict[str, Any]:
    if not clew.ask(f"Book {state['city']} for {state['price']} €?", schema=bool):  # the process may end here
        return {"messages": ["Not booked."]}
    paid = charge(state["price"])
    plan = model("write the plan", state["city"], state["days"])
    return {"messages": [paid, plan], "booked": True}


def work(call: str) -> None:
    """Take a while, as a model does; and note in a file that this was called, whatever Clew says."""
    with (HERE / "calls.txt").open("a", encoding="utf-8") as file:
        file.write(f"{call}\n")
    print(f"  {call:<16}", end="", flush=True)
    for _ in range(8):
        time.sleep(PACE)
        print(".", end="", flush=True)
    print(" done", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("thread")
    parser.add_argument("--branch", default="main")
    args = parser.parse_args()
    with clew.open(str(HERE / "agent.db")) as db:
        thread = db.thread(args.thread, branch=args.branch)
        new = thread.head is None
        run = trip.run(thread, {"city": "Tokyo", "days": 3}) if new else trip.resume(thread)
        for request in run.requests:
            asked = request.question
            print(f"  {request.id}: {asked if isinstance(asked, str) else asked['question']}")
        if run.status == "done":
            print(f"  {run.state['messages'][-1]}")


if __name__ == "__main__":
    PACE = float(os.environ.get("PACE", "0.12"))
    main()
