"""`clew demo`, whole: a real child, a real SIGKILL."""

from __future__ import annotations

from clew_shell import shell

import clew
from clew.cli import demo_agent


def test_the_agent_is_killed_and_goes_on_and_is_forked(tmp_path):
    done = shell("demo", "--fast", "--keep", "it", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert "  killed\n" in done.stdout
    assert "goes on after: understand" in done.stdout
    assert "\x1b" not in done.stdout
    for line in (
        "$ clew log trip-7",
        "$ clew diff trip-7@2 4",
        "$ clew fork trip-7@3 --as osaka --set city=Osaka --set days=2",
    ):
        assert line in done.stdout

    events = [line.split("\t") for line in (tmp_path / "it" / "executed.txt").read_text().splitlines()]
    finished = [step for event, branch, step in events if (event, branch) == ("finished", "main")]
    assert finished == demo_agent.PLAN
    began = [step for event, branch, step in events if (event, branch) == ("began", "main")]
    assert len(began) <= len(demo_agent.PLAN) + 1
    assert [step for event, branch, step in events if (event, branch) == ("finished", "osaka")] == demo_agent.PLAN[2:]

    with clew.open(str(tmp_path / "it" / "agent.db")) as db:
        main, osaka = db.thread("trip-7").state(), db.thread("trip-7", branch="osaka").state()
    assert main["done"] == osaka["done"] == demo_agent.PLAN
    assert len(main["messages"]) == len(osaka["messages"]) == len(demo_agent.PLAN) + 1
    assert "3 days in Tokyo" in main["messages"][-1]["content"]
    assert "2 days in Osaka" in osaka["messages"][-1]["content"]


def test_it_does_not_write_over_a_database(tmp_path):
    (tmp_path / "agent.db").touch()
    done = shell("demo", "--keep", ".", cwd=tmp_path)
    assert done.returncode == 2
    assert "has an agent.db already" in done.stderr
    assert (tmp_path / "agent.db").stat().st_size == 0
