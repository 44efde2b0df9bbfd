"""What may be printed and kept of an address."""

from __future__ import annotations

import pytest

from xlarank.data.passwords import passwords_of, without, without_passwords


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("postgresql+psycopg://me:secret@host:5432/db", "postgresql+psycopg://me:***@host:5432/db"),
        ("postgresql://me:sec:ret/x@host/db", "postgresql://me:***@host/db"),
        ("postgresql://me:sec@ret@host/db", "postgresql://me:***@host/db"),
        ("postgresql://:secret@host/db", "postgresql://:***@host/db"),
        ("POSTGRES://me:@host", "POSTGRES://me:***@host"),
        ("postgresql:///db?user=me&password=secret&host=h", "postgresql:///db?user=me&password=***&host=h"),
        ("--storage=mysql://a:secret@h and then", "--storage=mysql://a:***@h and then"),
        ("postgresql://me@host:5432/db", "postgresql://me@host:5432/db"),
        ("journal:/a/b:c@d.log", "journal:/a/b:c@d.log"),
        ("layout:xla:random", "layout:xla:random"),
    ],
)
def test_what_is_shown(given: str, shown: str) -> None:
    assert without_passwords(given) == shown


def test_within_what_holds_texts() -> None:
    given = {"storage": "x://a:secret@h", "more": ["x://a:secret@h", 3, None, ("y",)]}
    assert without_passwords(given) == {"storage": "x://a:***@h", "more": ["x://a:***@h", 3, None, ["y"]]}


def test_a_library_that_speaks_of_the_password_itself() -> None:
    """As written in the address, and decoded."""
    known = passwords_of("postgresql://me:p%40ss@host/db")
    assert known == {"p%40ss", "p@ss"}
    assert without("tried 'p@ss' and p%40ss at host", known) == "tried '***' and *** at host"
    assert passwords_of("postgresql://me@host/db") == passwords_of("postgresql://me:@host/db") == set()
