"""The README's program, whole. Run it, kill it while the model is asked (kill -9, or Ctrl-C), and run it again."""

import os
import time
from pathlib import Path


def llm(messages):
    """Stands for a language model: it wants to charge the card, then it takes its time to answer."""
    print("  the model is asked", flush=True)
    if "receipt" not in messages[-1]:
        return {"role": "assistant", "charge": ["order-7", 420]}
    time.sleep(float(os.environ.get("PACE", "5")))
    return {"role": "assistant", "content": f"A week in Tokyo is yours: {messages[-1]['receipt']}."}


class bank:  # noqa: N801 - stands for a module
    """Stands for the outside world: it does what it is told, as often as it is told."""

    @staticmethod
    def charge(order, euros):
        print(f"  the card is charged: {euros} €", flush=True)
        with Path("bank.txt").open("a", encoding="utf-8") as file:
            file.write(f"{order}: {euros} €\n")
        return {"role": "tool", "receipt": "X4T-221"}


# What the README shows begins here.
import clew  # noqa: E402


@clew.recorded  # an answer that has come is not asked for again
def model(messages):
    return llm(messages)


@clew.effect(key=lambda order, euros: order)  # at most once; if nobody knows, it asks
def charge(order, euros):
    return bank.charge(order, euros)


@clew.agent
def clerk(state):
    messages = list(state["messages"])
    while "charge" in (reply := model(messages)):
        messages += [reply, charge(*reply["charge"])]
    return {"messages": [*messages, reply]}


with clew.open("agent.db") as db:  # or "postgresql://…"
    asked = {"messages": [{"role": "user", "content": "A week in Tokyo, please"}]}
    run = clerk.run(db.thread("order-7"), asked, key="order-7")  # the same key is the same run
    print(run.state["messages"][-1]["content"])
