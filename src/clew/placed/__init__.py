"""The room for adapters: checkpoints that a framework places under its own ids, as storage/placed.py promises.

A *placed* checkpoint has a namespace and an id, a state (what people see), control data (what only the framework
needs), and records: what tasks have finished with beside it. `PlacedThreads` writes and reads them. What it has last
read or written of a namespace it remembers, so that the next checkpoint costs what has changed.
"""

from clew.placed.threads import Begun, PlacedThreads, Recording
from clew.placed.values import TOOK, Found, New, Place, Question, Trail, Write, meet
from clew.state.many import Items

__all__ = [
    "PlacedThreads",
    "Begun",
    "Recording",
    "Place",
    "Found",
    "New",
    "Write",
    "Question",
    "Trail",
    "Items",
    "TOOK",
    "meet",
]
