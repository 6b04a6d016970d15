"""The loop as an agent: it asks before it pays, pays once, and goes on where it was killed. Run it until it is done."""

import re
from pathlib import Path

from standin import MODEL, client

import clew

llm = client()


@clew.recorded  # what the model has answered is not asked again
def model(messages: list) -> str:
    return llm.chat.completions.create(model=MODEL, messages=messages).choices[0].message.content


@clew.effect(key=lambda city, euros: f"trip to {city}")  # at most once; if nobody knows whether, it asks
def pay(city: str, euros: int) -> str:
    with Path("payments.txt").open("a", encoding="utf-8") as bank:
        bank.write(f"{city}: {euros} €\n")
    return f"Paid {euros} € for {city}."


booking = clew.Agent("booking")


@booking.node(start=True, then="book")
def plan(state: dict) -> dict:
    messages = []
    for text in (f"Plan {state['days']} days in {state['city']}.", "What will it cost?"):
        messages.append({"role": "user", "content": text})
        messages.append({"role": "assistant", "content": model(messages)})
    euros = int(re.findall(r"(\d+) €", messages[-1]["content"])[-1])
    return {"messages": messages, "euros": euros}


@booking.node
def book(state: dict) -> dict:
    question = f"Book {state['days']} days in {state['city']} for {state['euros']} €?"
    if not clew.ask(question, schema=bool, assignee="anna"):  # this process may end here, and another one go on
        return {"outcome": "not booked"}
    return {"outcome": pay(state["city"], state["euros"])}


def tell(run: clew.Run) -> None:
    print(f"{run.id} is {run.status}")
    for request in run.requests:
        print(f"  {request.id} asks {request.assignee}: {request.question}")
    if run.status == "done":
        print(f"  {run.state['outcome']}")


if __name__ == "__main__":
    with clew.open("booking.db") as db:
        tell(booking.run(db.thread("trip-8"), {"city": "Tokyo", "days": 3}, key="first"))  # the same key: the same run
