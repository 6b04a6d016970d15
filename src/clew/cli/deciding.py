"""What `approve`, `reject` and `answer` share: who answers, and what has come of it."""

from __future__ import annotations

import getpass
from collections.abc import Callable, Sequence
from typing import TypeVar

import click

import clew
from clew.cli.asked import short
from clew.cli.output import print_json
from clew.cli.settings import note, open_database, settings
from clew.errors import BadInput, NotFound

Command = TypeVar("Command", bound=Callable[..., object])


def person_options(command: Command) -> Command:
    """`--by` and `--reason`."""
    by = click.option("--by", metavar="NAME", envvar="CLEW_BY", help="Who answers. Default: CLEW_BY, else your login.")
    return by(click.option("--reason", metavar="TEXT", help="Why; it is kept with the answer.")(command))


def decide(requests: Sequence[str], by: str | None, how: Callable[[clew.Request, str], clew.Request]) -> None:
    """Decide each request, and print what became of it. At one that is refused this stops; those before it are decided.

    All are looked up before the first is decided, so that a mistyped one changes nothing.
    """
    name = _person(by)
    with open_database() as db:
        found = [db.request(request) for request in requests]
        decided: list[clew.Request] = []
        try:
            for request in found:
                answered = how(request, name)
                decided.append(answered)
        finally:
            _tell(db, decided, name)


def _person(by: str | None) -> str:
    if by is not None:
        return by
    try:
        return getpass.getuser()
    except (KeyError, OSError) as error:
        raise BadInput("nobody knows who you are", hint="add --by NAME, or set CLEW_BY") from error


def _tell(db: clew.Database, decided: list[clew.Request], by: str) -> None:
    if settings().json:
        print_json({"requests": [request.as_json() for request in decided]})
        return
    for request in decided:
        click.echo(f"{request.id} {_outcome(request)}, by {by}")
    for request in decided:
        if request.status == "answered" and request.run is not None:
            _tell_what_goes_on(db, request.run)


def _outcome(request: clew.Request) -> str:
    if request.status != "answered":
        return f"has {request.answers} of the {request.approvals} answers that it needs"
    return "is rejected" if request.rejected else f"is answered: {short(request.value)}"


def _tell_what_goes_on(db: clew.Database, run_id: str) -> None:
    """How the run goes on, if no worker takes it up."""
    try:
        run = db.run(run_id).info
    except NotFound:
        return  # LangGraph's, which are no runs of ours
    if run.status == "waiting":
        branch = "" if run.branch == "main" else f"@{run.branch}"
        note(f"its run can go on: clew resume MODULE:{run.agent} {run.thread_id}{branch}")
