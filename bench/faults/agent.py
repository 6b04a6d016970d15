"""What the agent does, whatever library runs it. Each word goes to the outside world, which may strike at it.

plan ─┬─ flight      books it: an effect
      └─ hotel       asks the model, asks a person, pays: a recorded call, a question, an effect
"""

from __future__ import annotations

from pathlib import Path

from clew.testing.outside import do, say

RUN = "trip-7"
QUESTION = "Pay 420 € for the hotel?"
ANSWER = "yes"
NODES = ("plan", "flight", "hotel")
CALLS = ("plan", "hotel")
EFFECTS = ("flight", "charge")


def model(topic: str) -> str:
    """A call to be recorded."""
    return say(f"call:{topic}")


def change(what: str) -> str:
    """The body of an effect: its first line runs when the library has decided to make the call."""
    say(f"calling:{what}")
    receipt = do(what)
    say(f"answered:{what}")
    return receipt


def answered(place: str) -> bool:
    """Whether the person who answers has been told that the answer was taken."""
    return (Path(place) / "answered").exists()


POINTS: dict[str, str] = {
    "begin:plan": "the run begins, before plan",
    "call:plan": "plan: model called, no answer yet",
    "got:plan": "plan: model answered",
    "end:plan": "plan: at its last line",
    "begin:flight": "before flight",
    "about:flight": "flight: before the effect",
    "calling:flight": "flight: decided to call, not called",
    "do:flight": "flight: called and done, no answer yet",
    "answered:flight": "flight: answered, not yet noted",
    "got:flight": "flight: the effect has returned",
    "end:flight": "flight: at its last line",
    "begin:hotel": "before hotel",
    "call:hotel": "hotel: model called, no answer yet",
    "got:hotel": "hotel: model answered, before the question",
    "waiting": "at the question",
    "answering": "before the answer is given",
    "answer:given": "the answer was given",
    "told:hotel": "hotel: the answer has arrived",
    "about:charge": "hotel: before the effect",
    "calling:charge": "hotel: decided to call, not called",
    "do:charge": "hotel: called and done, no answer yet",
    "answered:charge": "hotel: answered, not yet noted",
    "got:charge": "hotel: the effect has returned",
    "end:hotel": "hotel: at its last line",
    "over": "the run has ended",
}
"""The words, in order, as people read them."""
