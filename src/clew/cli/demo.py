"""`clew demo`: an agent asks, is killed in the middle of a call, goes on, has paid once, and is forked."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click
from rich.text import Text

import clew
from clew.cli import demo_agent
from clew.cli.diff import diff
from clew.cli.fork import fork
from clew.cli.log import log
from clew.cli.output import console, is_terminal, table
from clew.cli.settings import Settings
from clew.errors import BadInput, ClewError

_THREAD = "trip-7"
_CALL_TO_KILL = "write the plan"
_PACE_TO_KILL = 0.15
"""Slow enough for the signal to come while the call is under way, also on a busy machine."""
_PAUSE = 0.8


class DemoFailed(ClewError):
    """What the demonstration should show did not happen."""

    code = "demo_failed"
    default_hint = "please report this, with what stands above"


@click.command()
@click.option(
    "--keep",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Work here, and not in /tmp.",
)
@click.option("--fast", is_flag=True, help="No pauses.")
@click.option("--no-color", is_flag=True, help="No colours. So does NO_COLOR.")
@click.pass_context
def demo(ctx: click.Context, keep: Path | None, fast: bool, no_color: bool) -> None:
    """Watch an agent being killed and going on, in half a minute. Needs no key and no network."""
    ctx.obj = Settings(no_color=no_color or ctx.ensure_object(Settings).no_color)
    folder = _folder(keep)
    try:
        _Demo(ctx, folder, fast=fast).run()
    except (KeyboardInterrupt, click.Abort):
        click.echo(f"\nstopped; what there is so far is in {folder}", err=True)
        raise


def _folder(keep: Path | None) -> Path:
    if keep is None:
        return Path(tempfile.mkdtemp(prefix="clew-demo-"))
    if (keep / "agent.db").exists():
        raise BadInput(f"{keep} has an agent.db already", hint="name a new directory: --keep other-dir")
    keep.mkdir(parents=True, exist_ok=True)
    return keep.absolute()


class _Demo:
    """The acts, in order. Each shows the command that a person would type."""

    def __init__(self, ctx: click.Context, folder: Path, *, fast: bool) -> None:
        self._ctx = ctx
        self._folder = folder
        self._paced = not fast and is_terminal()
        self._pace = 0.1 if self._paced else 0.03
        self._out = console()
        ctx.obj.db = str(folder / "agent.db")
        shutil.copy(demo_agent.__file__, folder / "agent.py")

    def run(self) -> None:
        self._say("An agent plans a trip, asks a person, and pays. Its model is a script.")
        self._say(f"Everything is in {self._folder}", 1)
        self._act("It works until it has to ask. Then it ends: nothing runs while it waits.")
        self._agent(_THREAD)
        self._act("Somebody answers, from another terminal.")
        self._elsewhere("inbox")
        self._elsewhere("approve", "R-1", "--by", "alice")
        self._act("It goes on, pays, and is killed in the middle of the next call (SIGKILL).")
        self._agent_killed()
        self._act("The same command again. What was done is not done again.")
        self._agent(_THREAD)
        self._act("Counted in two files that Clew knows nothing of:")
        self._count()
        self._act("What if it were Osaka? Fork at the first step, and let that run beside it.")
        self._clew(fork, f"{_THREAD}@1", "--as", "osaka", "--set", "city=Osaka")
        self._agent(_THREAD, "--branch", "osaka")
        self._act("Both, side by side. Nothing was copied.")
        self._clew(log, _THREAD)
        self._act("And how they differ.")
        self._clew(diff, _THREAD, "osaka")
        self._end()

    # What is said.

    def _say(self, text: str, pause: float = 0.0) -> None:
        self._out.print(Text(text))
        self._wait(pause)

    def _act(self, text: str) -> None:
        self._wait(1)
        self._out.print()
        self._out.print(Text(text, "bold"))
        self._wait(1)

    def _command(self, words: Sequence[str]) -> None:
        self._out.print(Text().append("$ ", "dim").append(" ".join(words), "cyan"))
        sys.stdout.flush()
        self._wait(0.5)

    def _wait(self, pauses: float) -> None:
        if self._paced:
            time.sleep(pauses * _PAUSE)

    # What is done.

    def _clew(self, command: click.Command, *words: str) -> None:
        assert command.name is not None  # noqa: S101
        self._command(["clew", command.name, *words])
        with command.make_context(command.name, list(words), parent=self._ctx) as ctx:
            try:
                command.invoke(ctx)
            except click.exceptions.Exit as end:  # diff tells with 1 that they differ
                if end.exit_code > 1:
                    raise

    def _elsewhere(self, *words: str) -> None:
        """A command of another process, as another terminal would show it."""
        margin = Text("│ ", "yellow")
        self._out.print(margin + Text("$ ", "dim").append(" ".join(["clew", *words]), "cyan"))
        self._wait(0.5)
        done = subprocess.run(  # noqa: S603
            [sys.executable, "-m", "clew.cli", *words],
            cwd=self._folder,
            env={**_environment(), "CLEW_DB": "agent.db"},
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
        if done.returncode:
            raise DemoFailed(f"clew {' '.join(words)} ended with {done.returncode}: {done.stderr.strip()}")
        for line in done.stdout.splitlines():
            self._out.print(margin + Text(line.rstrip()))
        self._wait(0.5)

    def _start(self, words: Sequence[str], pace: float) -> subprocess.Popen[bytes]:
        self._command(["python", "agent.py", *words])
        return subprocess.Popen(  # noqa: S603
            [sys.executable, "agent.py", *words],
            cwd=self._folder,
            stdout=subprocess.PIPE,
            env={**_environment(), "PACE": str(pace)},
            process_group=0,  # Ctrl-C is for this process, which ends the agent
        )

    def _agent(self, *words: str) -> None:
        with self._start(words, self._pace) as agent:
            try:
                self._copy_output(agent)
            except BaseException:
                agent.kill()
                raise
        if agent.returncode:
            raise DemoFailed(f"the agent ended with {agent.returncode}")

    def _agent_killed(self) -> None:
        """Run the agent and kill it inside a call."""
        with self._start([_THREAD], _PACE_TO_KILL) as agent:
            try:
                self._copy_output(agent, until=f"{_CALL_TO_KILL:<16}....")
            finally:
                agent.kill()
        if agent.returncode != -signal.SIGKILL:
            raise DemoFailed(f"the agent ended with {agent.returncode}, before it could be killed")
        self._out.print(Text("  killed", "bold red"))

    def _copy_output(self, agent: subprocess.Popen[bytes], until: str | None = None) -> None:
        """Show what the agent prints, as it comes; stop when it has printed `until`."""
        assert agent.stdout is not None  # noqa: S101
        seen = b""
        while chunk := agent.stdout.read1(4096):  # type: ignore[attr-defined]
            seen += chunk
            sys.stdout.write(chunk.decode("utf-8", "replace"))
            sys.stdout.flush()
            if until is not None and until.encode() in seen:
                return

    def _count(self) -> None:
        """What the agent has really called, and what the bank has seen."""
        made, charges = Counter(self._lines("calls.txt")), len(self._lines("charges.txt"))
        rows: list[list[Text | str]] = [[Text(name, "dim") for name in ("", "call", "made", "")]]
        for call in demo_agent.CALLS:
            remark = Text("killed inside, then made again" if call == _CALL_TO_KILL else "", "dim")
            rows.append(["", call, str(made[call]), remark])
        for line in table(rows, right=frozenset({2})):
            self._out.print(line)
        self._out.print()
        self._out.print(Text(f"  charges: {charges}", "bold green" if charges == 1 else "bold red"))
        expected = {call: 1 + (call == _CALL_TO_KILL) for call in demo_agent.CALLS}
        if made != expected or charges != 1:
            raise DemoFailed("calls were not made as they should be")

    def _lines(self, name: str) -> list[str]:
        return (self._folder / name).read_text(encoding="utf-8").splitlines()

    def _end(self) -> None:
        self._act("Look for yourself: the trip to Osaka waits for an answer.")
        self._say(f"  cd {self._folder}")
        if sys.prefix not in (sys.base_prefix, os.environ.get("VIRTUAL_ENV")):
            self._say(f"  export PATH={Path(sys.executable).parent}:$PATH")
        for words in (
            "clew inbox R-2",
            "clew approve R-2",
            f"python agent.py {_THREAD} --branch osaka   # it asks before it pays again",
            f"clew show {_THREAD}@osaka",
            "less agent.py",
        ):
            self._say(f"  {words}")


def _environment() -> dict[str, str]:
    """The child speaks UTF-8 through the pipe, and finds this very Clew."""
    source = str(Path(clew.__file__).parent.parent)
    paths = [source, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONIOENCODING": "utf-8", "PYTHONPATH": os.pathsep.join(paths)}
