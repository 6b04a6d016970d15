"""The command as a process: databases that are missing or strange, environment, pipes, Ctrl-C, completion."""

from __future__ import annotations

import os
import pty
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from clew_shell import command, environment, shell

import clew


def tamper(path: Path, sql: str) -> None:
    """Change the file behind Clew's back."""
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(sql)
    connection.close()


class TestWhichDatabase:
    def test_agent_db_here_by_default(self, db_path):
        assert "trip-7" in shell("threads", cwd=db_path.parent).stdout

    def test_the_environment_names_one(self, db_path, tmp_path_factory):
        elsewhere = tmp_path_factory.mktemp("elsewhere")
        assert "trip-7" in shell("threads", cwd=elsewhere, CLEW_DB=str(db_path)).stdout

    @pytest.mark.parametrize(
        "args", [["-d", "{}", "threads"], ["threads", "--db", "{}"], ["threads", "-d", "sqlite:///{}"]]
    )
    def test_the_option_wins_wherever_it_stands(self, db_path, args):
        done = shell(*(arg.format(db_path) for arg in args), cwd=Path("/"), CLEW_DB="/nowhere/x.db")
        assert "trip-7" in done.stdout, done.stderr


class TestErrors:
    def test_a_missing_file_is_not_made(self, run, db_path):
        for args in (
            ["threads"],
            ["log", "trip-7"],
            ["tag", "trip-7", "x"],
            ["prune", "--keep-last", "1", "-y"],
            ["usage"],
        ):
            stderr = run("--db", "other.db", *args, code=10).stderr
            assert "no database 'other.db'" in stderr
            assert "here is agent.db" in stderr
        assert not Path("other.db").exists()
        stderr = run("--db", "/nowhere/agent.db", "threads", code=10).stderr
        assert "/nowhere/agent.db" in stderr
        assert "clew.open('/nowhere/agent.db')" in stderr

    def test_an_empty_file_stays_empty(self, run):
        Path("empty.db").touch()
        assert "empty.db is empty" in run("-d", "empty.db", "threads", code=12).stderr
        assert Path("empty.db").stat().st_size == 0

    def test_not_a_database(self, run):
        Path("noise.db").write_bytes(b"no database " * 1000)
        assert "noise.db" in run("-d", "noise.db", "threads", code=12).stderr
        tamper(Path("other.db"), "CREATE TABLE t (x)")
        assert "another program" in run("-d", "other.db", "threads", code=12).stderr
        assert "is a directory" in run("-d", ".", "threads", code=1).stderr
        assert "memory" in run("-d", "memory:", "threads", code=2).stderr
        assert "postgresql://" in run("-d", "mysql://host/x", "threads", code=2).stderr

    def test_a_newer_format(self, run, db_path):
        tamper(db_path, "PRAGMA user_version = 999")
        stderr = run("threads", code=12).stderr
        assert "format 999" in stderr
        assert "upgrade Clew" in stderr

    def test_damaged_bytes(self, run, db_path):
        tamper(db_path, "UPDATE checkpoint SET manifest = zeroblob(20)")
        assert "checksum" in run("show", "trip-7", code=12).stderr

    def test_an_unknown_thread(self, run):
        stderr = run("log", "trip", code=10).stderr
        assert "no thread 'trip' for tenant 'default'" in stderr
        assert "did you mean 'trip-7'?" in stderr
        assert "`clew threads`" in run("log", "zzz", code=10).stderr

    @pytest.mark.parametrize(
        ("place", "told"),
        [
            ("trip-7@99", "no step 99"),
            ("trip-7@osakka", "did you mean 'osaka'"),
            ("trip-7@before-paymant", "did you mean 'before-payment'"),
            ("trip-7@~9", "goes back 9"),
            ("trip-7@0", "steps count from 1"),
            ("trip-7@", "not a reference"),
            ("@3", "no thread before the @"),
        ],
    )
    def test_a_bad_reference(self, run, place, told):
        assert told in run("show", place, code=13).stderr

    def test_wrong_usage(self, run):
        for args in (["bogus"], ["log"], ["log", "trip-7", "-n", "x"], ["show", ""], ["log", "bad\nid"]):
            assert run(*args, code=2).stdout == ""

    def test_nothing_but_the_data_goes_to_stdout(self, run):
        assert run("show", "nobody", code=10).stdout == ""


class TestIdsWithAnAt:
    def test_are_found_whole_or_with_a_reference(self, run_json, db_path):
        with clew.open(str(db_path)) as db:
            thread = db.thread("anna@example.com")
            thread.save({"n": 1})
            thread.save({"n": 2})
        assert run_json("show", "anna@example.com")["state"] == {"n": 2}
        assert run_json("show", "anna@example.com@1")["state"] == {"n": 1}
        assert run_json("show", "anna@example.com@~1")["state"] == {"n": 1}

    def test_what_could_be_both_is_refused(self, run, run_json, db_path):
        with clew.open(str(db_path)) as db:
            db.thread("trip-7@osaka").save({"other": True})
        stderr = run("show", "trip-7@osaka", code=13).stderr
        assert "'trip-7@osaka@head'" in stderr
        assert run_json("show", "trip-7@osaka@head")["state"] == {"other": True}


def test_without_the_agents_code(run, run_json, db_path):
    """Its class is registered by the process that saves, and by no other."""
    code = (
        "import clew, dataclasses\n"
        "@clew.register('shop.Order', version=2)\n"
        "@dataclasses.dataclass\n"
        "class Order:\n    count: int\n"
        f"clew.open({str(db_path)!r}).thread('shop').save({{'order': Order(3), 'n': 1}})\n"
    )
    subprocess.run([sys.executable, "-c", code], env=environment(), check=True, timeout=30)
    shown = run("show", "shop")
    assert "order  Opaque shop.Order v2" in shown.stdout
    assert '@clew.register("shop.Order")' in shown.stderr
    assert "Warning" not in shown.stderr
    assert run_json("show", "shop")["state"]["order"]["$type"] == "Opaque"


class TestTerminal:
    def on_terminal(self, *args: str, cwd: Path, **more: str) -> str:
        """What the command writes to a terminal of 80 columns."""
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            command(*args), cwd=cwd, env=environment(TERM="xterm-256color", COLUMNS="80", **more),
            stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(theirs)
        text = b""
        try:
            while chunk := os.read(ours, 4096):
                text += chunk
        except OSError:
            pass  # the other end is closed
        process.wait(30)
        os.close(ours)
        return text.decode()

    def test_colours_only_where_they_are_wanted(self, db_path):
        cwd = db_path.parent
        assert "\x1b[" in self.on_terminal("log", "trip-7", cwd=cwd)
        assert "\x1b[" not in self.on_terminal("log", "trip-7", cwd=cwd, NO_COLOR="1")
        assert "\x1b[" not in self.on_terminal("log", "trip-7", "--no-color", cwd=cwd)
        assert "\x1b[" not in shell("log", "trip-7", cwd=cwd).stdout

    def test_colours_end_where_they_should(self, db_path):
        log = self.on_terminal("log", "trip-7", "-n", "1", "--branch", "main", cwd=db_path.parent)
        assert "\x1b[0mdone \x1b[1;32m(main)\x1b[0m" in log
        diff = self.on_terminal("diff", "trip-7@1", "osaka", cwd=db_path.parent)
        assert '\x1b[33m~ \x1b[0m\x1b[36mcity       \x1b[0m  "Tokyo" → "Osaka"' in diff

    def test_lines_fit(self, db_path):
        with clew.open(str(db_path)) as db:
            db.thread("wide" * 50).save({"x" * 90: "y" * 500, "日本" * 40: ["z" * 60] * 3}, label="long label " * 20)
        for args in (["threads"], ["log", "wide" * 50, "--stat"], ["show", "wide" * 50, "-k", "日本" * 40]):
            for line in self.on_terminal(*args, cwd=db_path.parent, NO_COLOR="1").splitlines():
                assert len(line) <= 80

    def test_text_is_made_harmless_on_a_terminal_and_exact_in_a_pipe(self, db_path):
        with clew.open(str(db_path)) as db:
            db.thread("evil").save({"text": "a\x1b[2Jb"})
        assert "a\\x1b[2Jb" in self.on_terminal("show", "evil", "-k", "text", cwd=db_path.parent)
        assert shell("show", "evil", "-k", "text", cwd=db_path.parent).stdout == "a\x1b[2Jb"

    def test_ascii_when_the_terminal_knows_no_more(self, db_path):
        done = shell("log", "trip-7", cwd=db_path.parent, PYTHONIOENCODING="ascii")
        assert done.stdout.startswith("  *  6")
        with clew.open(str(db_path)) as db:
            db.thread("chat-1").update({"text": "日本"})
        assert "\\u65e5" in shell("show", "chat-1", "--json", cwd=db_path.parent, PYTHONIOENCODING="ascii").stdout


def test_a_closed_pipe_ends_it_quietly(db_path):
    with clew.open(str(db_path), durability="relaxed") as db:
        db.thread("long").save({"rows": [f"row {n} " * 10 for n in range(20000)]})
    for args in (["show", "long", "--full"], ["show", "long", "--json"]):
        process = subprocess.Popen(
            command(*args), cwd=db_path.parent, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        _, stderr = process.communicate(timeout=30)
        assert stderr == b""
        assert process.returncode == 141


def test_ctrl_c_ends_it_quietly(db_path):
    """While it waits for an answer."""
    process = subprocess.Popen(
        command("prune", "--keep-last", "1"), cwd=db_path.parent, env=environment(), stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored by what a shell runs with `&`
    )  # fmt: skip
    assert process.stderr is not None
    seen = b""
    while b"[y/N]" not in seen:
        seen += process.stderr.read(1)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=30)
    assert (process.returncode, stdout) == (130, b"")
    assert b"Traceback" not in stderr


def test_completion_knows_threads_and_their_names(db_path):
    def completed(words: str) -> list[str]:
        done = subprocess.run(
            command(), cwd=db_path.parent, capture_output=True, text=True, timeout=30, check=False,
            env=environment(_CLEW_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=str(len(words.split()) - 1)),
        )  # fmt: skip
        return [line.split(",", 1)[1] for line in done.stdout.splitlines() if line]

    assert completed("clew log tr") == ["trip-7"]
    assert completed("clew log trip-7@") == ["trip-7@main", "trip-7@osaka", "trip-7@before-payment"]
    assert completed("clew log -d nothing.db tr") == []


def test_version():
    assert shell("--version", cwd=Path("/")).stdout.startswith("clew ")


def test_a_server_is_used_like_a_file(run, run_json, postgres):
    with clew.open(postgres.url) as db:
        db.thread("trip-7").save({"city": "Tokyo"}, label="plan")
    assert "plan (main)" in run("--db", postgres.url, "log", "trip-7").stdout
    run("--db", postgres.url, "fork", "trip-7@1", "--as", "osaka", "--set", "city=Osaka")
    assert "Osaka" in run("--db", postgres.url, "diff", "trip-7@1", "osaka", code=1).stdout
    assert run_json("--db", postgres.url, "usage")["checkpoints"] == 2


def test_a_server_that_is_not_there(run):
    result = run("--db", "postgresql://user:secret@127.0.0.1:1/x?connect_timeout=2", "threads", code=1)
    assert result.stderr.startswith("error: ")
    assert "secret" not in result.output
