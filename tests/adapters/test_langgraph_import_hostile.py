"""What an import reads never runs: published attacks on LangGraph's serialisers and some more, in every place."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import ormsgpack
import pytest
from hostile_rows import attacks, json_attacks, pack, write
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from clew.adapters.langgraph.import_values import Decoder, Undecodable

HERE = Path(__file__).parent


def test_nothing_is_imported_called_or_opened(tmp_path: Path) -> None:
    """In a process of its own: an audit hook stays for ever."""
    pwned, hostile = tmp_path / "pwned", tmp_path / "hostile.db"
    rows = write(hostile, pwned)
    write(Path(f"{hostile}.harmless"), None)
    done = subprocess.run(
        [sys.executable, str(HERE / "hostile_rows.py"), str(hostile)],
        env={**os.environ, "PYTHONPATH": f"{HERE.parents[1] / 'src'}:{HERE}", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads(done.stdout)
    assert report["seen"] == []
    assert report["modules"] == []
    assert not pwned.exists()
    assert report["brought"] + len(report["skipped"]) == rows
    assert report["brought"] >= len(attacks(pwned)) + len(json_attacks(pwned)) - 1
    assert any("pickle" in reason for reason in report["skipped"])
    assert {"os:system", "builtins:eval", "subprocess:Popen"} <= report["opaque"].keys()


@pytest.mark.parametrize("name", ["system", "eval", "popen"])
def test_the_attacks_work(name: str, tmp_path: Path) -> None:
    """The negative control: LangGraph's serialiser, as it is by default, runs them."""
    pwned = tmp_path / "pwned"
    JsonPlusSerializer().loads_typed(("msgpack", pack(attacks(pwned)[name])))
    for _ in range(1000):
        if pwned.exists():
            break
        os.sched_yield()
    assert pwned.exists()


def test_depth_is_bounded() -> None:
    """Objects in lists in objects: neither alone is deep."""
    value: bytes = b"\xc0"
    for _ in range(40):
        value = pack(ormsgpack.Ext(0, pack(["builtins", "set", 0])[:-1] + b"\x91" * 200 + value))
    with pytest.raises(Undecodable, match="damaged"):
        Decoder().read("msgpack", value)


def test_a_damaged_value_is_refused_whole() -> None:
    data = pack({"a": [1, 2, {"b": "c" * 40}], "d": ormsgpack.Ext(0, pack(["uuid", "UUID", "0" * 32]))})
    whole = Decoder().read("msgpack", data)
    for end in range(len(data)):
        with pytest.raises(Undecodable):
            Decoder().read("msgpack", data[:end])
    assert whole["d"].int == 0
