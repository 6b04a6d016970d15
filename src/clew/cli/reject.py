"""`clew reject`: a no."""

from __future__ import annotations

import click

from clew.cli.deciding import decide, person_options
from clew.cli.settings import database_options


@click.command(short_help="Say no to what an agent asks.")
@click.argument("requests", nargs=-1, required=True, metavar="R-12...")
@person_options
@database_options()
def reject(requests: tuple[str, ...], by: str | None, reason: str | None) -> None:
    """Say no: false, or {"approved": false}. One no decides, however many approvals are needed.

    Where an answer has no way to say no, the agent gets clew.errors.Rejected, with your reason.
    """
    decide(requests, by, lambda request, name: request.reject(by=name, reason=reason))
