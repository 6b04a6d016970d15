"""A small agent in plain Python that survives being killed. `clew demo` runs it; read it, change it, run it yourself.

    python agent.py THREAD [--branch NAME] [--request TEXT]

Its model is a script, so that it needs no key and no network. Each step changes the state inside `thread.edit(...)`:
when the block is left, the step is durable; when the process dies inside, the step has never happened.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import clew

HERE = Path(__file__).parent
PLAN = ["understand", "find flights", "find hotels", "compare prices", "plan the days", "write the answer"]


def model(step: str, state: dict[str, Any]) -> str:
    """Stands for a call to a language model."""
    city, days = state["city"], state["days"]
    return {
        "understand": f"The user wants {days} days in {city}.",
        "find flights": f"Two flights to {city} fit: 9:40 for 610 €, 13:15 for 540 €.",
        "find hotels": f"Three hotels in {city} are free, from 80 € a night.",
        "compare prices": f"The 13:15 flight and the middle hotel: {540 + 95 * days} €.",
        "plan the days": f"Day 1: walk through {city}. Day 2: a museum and a market. Then the country around it.",
        "write the answer": f"{days} days in {city} for {540 + 95 * days} €. Shall I book it?",
    }[step]


def note(event: str, branch: str, step: str) -> None:
    """Write to a plain file beside the database what really was executed, whatever Clew says."""
    with (HERE / "executed.txt").open("a", encoding="utf-8") as file:
        file.write(f"{event}\t{branch}\t{step}\n")


def work(step: str, pace: float) -> None:
    """Take a while, as a model does, and show that something happens."""
    print(f"  {step:<18}", end="", flush=True)
    for _ in range(8):
        time.sleep(pace)
        print(".", end="", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("thread")
    parser.add_argument("--branch", default="main")
    parser.add_argument("--request", default="Three days in Tokyo, please")
    parser.add_argument("--pace", type=float, default=0.12)
    args = parser.parse_args()

    with clew.open(str(HERE / "agent.db")) as db:
        thread = db.thread(args.thread, branch=args.branch)
        state = thread.state()
        if not state:
            state = {"city": "Tokyo", "days": 3, "done": [], "messages": [{"role": "user", "content": args.request}]}
            thread.save(state, label="request")
        elif state["done"]:
            print(f"  goes on after: {', '.join(state['done'])}")

        for step in PLAN[len(state["done"]) :]:
            with thread.edit(step) as state:
                note("began", args.branch, step)
                work(step, args.pace)
                state["messages"].append({"role": "assistant", "content": model(step, state)})
                state["done"].append(step)
                note("finished", args.branch, step)
            print(" saved", flush=True)
        print(f"  {state['messages'][-1]['content']}")


if __name__ == "__main__":
    main()
