"""`clew resume`: let an agent go on, here and now."""

from __future__ import annotations

import click

from clew.cli.code import find_agent, own_code
from clew.cli.place import complete_place
from clew.cli.running import WAITING_FOR_A_HUMAN, find_branch, tell_outcome
from clew.cli.settings import database_options, open_database


@click.command(short_help="Let an agent go on, here and now.")
@click.argument("agent", metavar="MODULE:AGENT")
@click.argument("place", metavar="THREAD[@REF]", shell_complete=complete_place)
@click.option("-b", "--branch", metavar="NAME", help="The branch to run on, where REF is a checkpoint.")
@database_options()
@click.pass_context
def resume(ctx: click.Context, agent: str, place: str, branch: str | None) -> None:
    """Go on with a thread's run: one that was left, waits for what has come, is paused, or has failed.

    A REF that is a branch says where; another one rewinds the branch to that checkpoint and goes on from there. THREAD
    may be a run's id. Ends with 15 when the run waits for a human.
    """
    with own_code(ctx):
        found = find_agent(agent)
    with open_database() as db:
        thread, ref = find_branch(db, place)
        if branch is not None:
            thread = db.thread(thread.id, branch=branch)
        with own_code(ctx):
            run = found.resume(thread) if ref is None else found.resume(thread, ref)
        if tell_outcome(run):
            ctx.exit(WAITING_FOR_A_HUMAN)
