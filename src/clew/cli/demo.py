"""`clew demo`: an agent is killed in the middle of a step, goes on, and is forked. No key, no network."""

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
_STEP_TO_KILL = demo_agent.PLAN[3]
_FORK_AT = 3
_PAUSE = 0.9


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
        self._pace = 0.12 if self._paced else 0.04
        self._out = console()
        ctx.obj.db = str(folder / "agent.db")
        shutil.copy(demo_agent.__file__, folder / "agent.py")

    def run(self) -> None:
        self._say(f"An agent plans a trip in {len(demo_agent.PLAN)} steps; its model is a script.")
        self._say(f"Everything is in {self._folder}", 1)
        self._act("It starts, and is killed in the middle of a step: SIGKILL, as in a crash.")
        killed = self._agent_killed()
        self._act("What it had finished is durable; the step that it was in left no trace.")
        self._clew(log, _THREAD)
        self._act("The same command again: it goes on where it was.")
        self._agent(_THREAD)
        self._act("Each step was finished once. (Counted in a file that the agent writes.)")
        self._count(killed)
        self._act("Every step is a checkpoint, and any two can be compared.")
        self._clew(diff, f"{_THREAD}@2", "4")
        self._act("What if it were Osaka? Fork at a step with other input, and let that run on.")
        self._clew(fork, f"{_THREAD}@{_FORK_AT}", "--as", "osaka", "--set", "city=Osaka", "--set", "days=2")
        self._agent(_THREAD, "--branch", "osaka")
        self._act("Both, side by side. The fork shares its past: nothing was copied or run again.")
        self._clew(log, _THREAD)
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

    def _start(self, words: Sequence[str]) -> subprocess.Popen[bytes]:
        self._command(["python", "agent.py", *words])
        return subprocess.Popen(  # noqa: S603
            [sys.executable, "agent.py", *words, "--pace", str(self._pace)],
            cwd=self._folder,
            stdout=subprocess.PIPE,
            env=_environment(),
            process_group=0,  # Ctrl-C is for this process, which ends the agent
        )

    def _agent(self, *words: str) -> None:
        with self._start(words) as agent:
            try:
                self._copy_output(agent)
            except BaseException:
                agent.kill()
                raise
        if agent.returncode:
            raise DemoFailed(f"the agent ended with {agent.returncode}")

    def _agent_killed(self) -> str | None:
        """Run the agent and kill it inside a step. Returns the step; None if the signal came too late for it."""
        with self._start([_THREAD]) as agent:
            try:
                self._copy_output(agent, until=f"{_STEP_TO_KILL:<18}....")
            finally:
                agent.kill()
        if agent.returncode != -signal.SIGKILL:
            raise DemoFailed(f"the agent ended with {agent.returncode}, before it could be killed")
        self._out.print(Text("  killed", "bold red"))
        begun = Counter(self._events("began"))
        unfinished = list(begun - Counter(self._events("finished")))
        return unfinished[0][1] if unfinished else None

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

    def _events(self, event: str) -> list[tuple[str, str]]:
        """Branch and step of what the agent wrote to its side file."""
        lines = (self._folder / "executed.txt").read_text(encoding="utf-8").splitlines()
        events = [line.split("\t") for line in lines]
        return [(branch, step) for kind, branch, step in events if kind == event]

    def _count(self, killed: str | None) -> None:
        began, finished = (Counter(step for _, step in self._events(event)) for event in ("began", "finished"))
        rows: list[list[Text | str]] = [[Text(name, "dim") for name in ("", "step", "began", "finished", "")]]
        for step in demo_agent.PLAN:
            remark = Text("killed inside, then run again" if step == killed else "", "dim")
            rows.append(["", step, str(began[step]), str(finished[step]), remark])
        for line in table(rows, right=frozenset({2, 3})):
            self._out.print(line)
        repeated = [step for step in demo_agent.PLAN if finished[step] != 1 or began[step] != 1 + (step == killed)]
        if repeated:
            raise DemoFailed(f"these steps were not executed as they should: {', '.join(repeated)}")

    def _end(self) -> None:
        self._act("Look for yourself:")
        self._say(f"  cd {self._folder}")
        for words in ("clew log trip-7 --stat", "clew show trip-7@osaka", "clew diff trip-7@main osaka", "clew usage"):
            self._say(f"  {words}")
        self._say("  less agent.py")


def _environment() -> dict[str, str]:
    """The child speaks UTF-8 through the pipe, and finds this very Clew."""
    source = str(Path(clew.__file__).parent.parent)
    paths = [source, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONIOENCODING": "utf-8", "PYTHONPATH": os.pathsep.join(paths)}
