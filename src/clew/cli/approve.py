"""`clew approve`: a yes."""

from __future__ import annotations

import click

from clew.cli.deciding import decide, person_options
from clew.cli.settings import database_options


@click.command(short_help="Say yes to what an agent asks.")
@click.argument("requests", nargs=-1, required=True, metavar="R-12...")
@person_options
@database_options()
def approve(requests: tuple[str, ...], by: str | None, reason: str | None) -> None:
    """Say yes: true, or {"approved": true}. What asks for more takes `clew answer`.

    `clew inbox R-12` shows what it is that you approve.
    """
    decide(requests, by, lambda request, name: request.approve(by=name, reason=reason))
