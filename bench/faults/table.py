"""The trials as a page: bench/FAULTS.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.faults.trial import Verdict

INTRODUCTION = """\
Measured on {date} by `{command}`, in {minutes:.0f} minutes. This page is written by that command;
[how it works](../docs/design/faults.md).

One small agent of three nodes, two effects, two recorded model calls and one question, written for each library as its
documentation recommends. In each trial a process of it is struck once, at a point that the outside world knows by a
message; then the program is started again, and all is done that the library offers to bring the run to its end. What
is counted is what the outside world saw, and the state at the end. A cell is empty when nothing was lost, repeated or
doubled, and nobody had to be asked."""
NOTES = """\
- *done twice*: the outside world did it twice. *again*: a node that was known to be finished ran again, or a model call
  was made again although its result had come back to its node. What was under way at the crash may run again.
- *asks*: the library says that it does not know whether the call was made, and asks a person before it is made again.
  The person looks, answers, and the run goes on; the trial counts what came of it.
- *named*: after the restart nothing went on, although it could have, until somebody named the run.
- *Undisturbed*: what a library repeats without any fault; the other rows leave that out."""


@dataclass
class Column:
    """One contender's results."""

    name: str
    finds: str
    version: str
    calm: Verdict
    rows: dict[str, Verdict] = field(default_factory=dict)
    sweep: list[Verdict] = field(default_factory=list)

    def wrong(self, verdict: Verdict) -> list[str]:
        """What this trial adds to what happens anyway."""
        return [told for told in verdict.told() if told not in self.calm.told()]

    def cell(self, verdict: Verdict | None) -> str:
        if verdict is None or not verdict.struck:
            return "-"
        return ", ".join([*self.wrong(verdict), *["asks"] * verdict.asked])

    def all(self) -> list[Verdict]:
        return [verdict for verdict in [*self.rows.values(), *self.sweep] if verdict.struck]


def page(columns: Sequence[Column], labels: dict[str, str], told: dict[str, str], head: dict[str, str]) -> str:
    """The whole page. `labels` names the rows, `told` is the machine."""
    parts = [
        "# Who loses, repeats or doubles what",
        INTRODUCTION.format(**head),
        "\n".join(f"- {name}: {value}" for name, value in told.items()),
        "## In total",
        totals(columns),
        "## Killed at every named point",
        table(columns, labels),
        NOTES,
        "## Killed before and after every commit",
        "The same, at each commit of the library from the first process to the last: 1, 2, 3 … until the run ends.",
        sweeps(columns),
        "## Who finds an interrupted run",
        "\n".join(f"- {column.name} ({column.version}): {column.finds}" for column in columns),
    ]
    return "\n\n".join(parts) + "\n"


def table(columns: Sequence[Column], labels: dict[str, str]) -> str:
    lines = [_line("struck", *(column.name for column in columns)), _line("---", *("---" for _ in columns))]
    lines.append(_line("*undisturbed*", *(", ".join(column.calm.told()) for column in columns)))
    for key, label in labels.items():
        lines.append(_line(label, *(column.cell(column.rows.get(key)) for column in columns)))
    return "\n".join(lines)


def sweeps(columns: Sequence[Column]) -> str:
    lines = [_line("", "kills", *_KINDS), _line("---", *("--:" for _ in range(len(_KINDS) + 1)))]
    lines += [_line(column.name, *_counts(column, column.sweep)) for column in columns]
    return "\n".join(lines)


def totals(columns: Sequence[Column]) -> str:
    lines = [_line("", "trials", *_KINDS), _line("---", *("--:" for _ in range(len(_KINDS) + 1)))]
    lines += [_line(column.name, *_counts(column, column.all())) for column in columns]
    return "\n".join(lines)


_KINDS = (
    "stuck",
    "state lost",
    "effects done twice",
    "effects never done",
    "finished nodes again",
    "recorded calls again",
    "asks a human",
    "had to be named",
)


def _counts(column: Column, verdicts: Sequence[Verdict]) -> list[str]:
    wrong = [" ".join(column.wrong(verdict)) for verdict in verdicts]
    counts = [
        len(verdicts),
        sum("stuck" in text for text in wrong),
        sum("lost" in text for text in wrong),
        sum("twice" in text for text in wrong),
        sum("never" in text for text in wrong),
        sum("node " in text for text in wrong),
        sum("call " in text for text in wrong),
        sum(verdict.asked for verdict in verdicts),
        sum(verdict.nobody for verdict in verdicts),
    ]
    return [str(count) for count in counts]


def _line(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"
