"""`clew answer`: an answer to a request, as JSON or as text."""

from __future__ import annotations

import sys
from typing import Any

import click

import clew
from clew.cli.deciding import decide, person_options
from clew.cli.settings import database_options, note
from clew.cli.tree import escape
from clew.cli.values import json_or_text, key_values
from clew.errors import WrongAnswer


@click.command(short_help="Answer what an agent asks.")
@click.argument("request", metavar="R-12")
@click.argument("value", required=False)
@click.option("--set", "entries", metavar="KEY=VALUE", multiple=True, help="An entry of an answer that is an object.")
@person_options
@database_options()
def answer(request: str, value: str | None, entries: tuple[str, ...], by: str | None, reason: str | None) -> None:
    """Answer a request. VALUE is JSON, or text where that is asked for; - reads it from stdin.

    What does not fit is refused, and the request is as open as before.

    \b
    clew answer R-12 window
    clew answer R-12 '{"approved": true}'
    clew answer R-12 --set approved=true --set note=fine
    """
    if (value is None) == (not entries):
        raise click.UsageError("give the answer: VALUE, or --set KEY=VALUE for each entry of an object")
    text = sys.stdin.read() if value == "-" else value

    def give(found: clew.Request, name: str) -> clew.Request:
        given = key_values(entries) if text is None else _fitting(found, text)
        try:
            return found.answer(given, by=name, reason=reason)
        except WrongAnswer as error:
            for problem in error.problems[1:]:
                note(f"also:  {escape(problem)}")
            raise WrongAnswer(error.message, hint="\n       ".join(["asked for is", *found.explain()])) from error

    decide([request], by, give)


def _fitting(request: clew.Request, text: str) -> Any:
    """What was typed as JSON, or as text if that is what fits: 12 may be a number, or the name of a room."""
    value = json_or_text(text)
    return text if request.check(value) and not request.check(text) else value
