"""Turns over all machines, and journals that a kill cut short."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from tests.pipelines.postgres import PostgresServer
from xlarank.pipelines.study.steady import Patience
from xlarank.pipelines.study.turns import JournalTurn, PostgresTurn, drop_cut_line


def patience(seconds: float = 0.5) -> Patience:
    return Patience("somewhere", str, seconds)


@pytest.mark.parametrize(
    ("before", "after"),
    [(b"", b""), (b"a\nb\n", b"a\nb\n"), (b"a\nbc", b"a\n"), (b"abc", b""), (b"a\n" + b"x" * 200_000, b"a\n")],
)
def test_a_cut_line_is_dropped(tmp_path: Path, before: bytes, after: bytes) -> None:
    path = tmp_path / "journal"
    path.write_bytes(before)
    drop_cut_line(path)
    assert path.read_bytes() == after


def one_after_the_other(first: object, second: object) -> list[str]:
    """What two threads did, each in a turn of its own."""
    order: list[str] = []

    def later() -> None:
        with second:  # type: ignore[attr-defined]
            order.append("second")

    thread = threading.Thread(target=later)
    with first:  # type: ignore[attr-defined]
        thread.start()
        thread.join(0.2)
        order.append("first")
    thread.join(30)
    return order


def test_one_at_a_time_by_a_file(tmp_path: Path) -> None:
    journal = tmp_path / "study.log"
    assert one_after_the_other(JournalTurn(journal, patience()), JournalTurn(journal, patience())) == [
        "first", "second",
    ]  # fmt: skip
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_one_at_a_time_by_a_server(postgres_server: PostgresServer, database: str) -> None:
    first, second = (create_engine(postgres_server.local(database)) for _ in range(2))
    turns = [PostgresTurn(engine, "a", patience()) for engine in (first, second)]
    assert one_after_the_other(*turns) == ["first", "second"]
    with turns[0], PostgresTurn(second, "b", patience()):
        pass  # of another name: it need not wait
    first.dispose()
    second.dispose()


@pytest.mark.slow
def test_a_killed_holder_keeps_no_turn(postgres_server: PostgresServer, database: str) -> None:
    address = postgres_server.local(database)
    source = (
        "import sys, time; from sqlalchemy import create_engine\n"
        "from xlarank.pipelines.study.steady import Patience\n"
        "from xlarank.pipelines.study.turns import PostgresTurn\n"
        "with PostgresTurn(create_engine(sys.argv[1]), 'a', Patience('', str, 9)):\n"
        "    print('in', flush=True); time.sleep(99)"
    )
    holder = subprocess.Popen([sys.executable, "-c", source, address], stdout=subprocess.PIPE, text=True)
    engine = create_engine(address)
    try:
        assert holder.stdout is not None
        with holder.stdout:
            assert holder.stdout.readline() == "in\n"
        holder.kill()
        began = time.monotonic()
        with PostgresTurn(engine, "a", patience()):
            assert time.monotonic() - began < 20
    finally:
        holder.kill()
        holder.wait(30)
        engine.dispose()


@pytest.mark.slow
def test_a_holder_that_does_nothing_loses_its_turn(
    postgres_server: PostgresServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped, or on a machine that is off: the server ends its transaction; leaving the turn then is no error."""
    monkeypatch.setattr("xlarank.pipelines.study.turns.GRACE", 1)
    engine = create_engine(postgres_server.local(database))
    with PostgresTurn(engine, "a", patience()):
        time.sleep(0.1)
        began = time.monotonic()
        with PostgresTurn(engine, "a", patience()), engine.connect() as other:
            assert other.execute(text("SELECT 1")).scalar() == 1
        assert time.monotonic() - began < 20
    engine.dispose()
