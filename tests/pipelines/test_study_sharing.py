"""Who is at work on a study, and one at a time."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from xlarank.pipelines.study.sharing import at_work, myself, one_at_a_time


def test_another_process_is_at_work_until_it_ends() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    name = f"{socket.gethostname()}:{process.pid}"
    try:
        assert at_work(name)
    finally:
        process.communicate(b"\n", timeout=30)
    assert not at_work(name)


@pytest.mark.parametrize(
    "name",
    [
        myself(),
        f"elsewhere:{os.getppid()}",
        "",
        None,
        f"{socket.gethostname()}:x",
        f"{socket.gethostname()}:{10**30}",
    ],
    ids=["myself", "elsewhere", "empty", "none", "no number", "no process"],
)
def test_who_is_not(name: object) -> None:
    """This process has no trial under way when it asks; another machine's cannot be seen."""
    assert not at_work(name)


def test_the_parent_of_this_process_is() -> None:
    assert at_work(f"{socket.gethostname()}:{os.getppid()}")


def test_one_at_a_time(tmp_path: Path) -> None:
    order: list[str] = []

    def second() -> None:
        with one_at_a_time(tmp_path):
            order.append("second")

    with one_at_a_time(tmp_path):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join(0.1)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="absent"), one_at_a_time(tmp_path / "absent"):
        pass
