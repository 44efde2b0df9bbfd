"""What may be printed and kept of an address."""

from __future__ import annotations

import pytest

from xlarank.data.passwords import hide_passwords, without_passwords

ADDRESSES = {
    "postgresql+psycopg://me:secret@host:5432/db": "postgresql+psycopg://me:***@host:5432/db",
    "postgresql://me:sec:ret/x@host/db": "postgresql://me:***@host/db",
    "postgresql://me:se;c ret@host/db": "postgresql://me:***@host/db",
    "postgresql://:secret@host/db": "postgresql://:***@host/db",
    "postgresql:///db?host=/run/db&password=secret": "postgresql:///db?***",
    "postgresql:///db?pass%77ord=secret": "postgresql:///db?***",
    "postgresql://me@host:5432/db": "postgresql://me@host:5432/db",
    "postgresql://me:sec@ret@host/db": "***",
    "postgresql://m@e:secret@host/db": "***",
    " postgresql://me:secret@host/db": "***",
    "postgresql://host/db;password=secret": "***",
    "postgresql://me:secret@host:port/db": "***",
    "host=db user=me password=secret": "***",
    "journal:/a/b:c@d.log": "journal:/a/b:c@d.log",
    "sqlite:///a b.db": "sqlite:///a b.db",
}  # fmt: skip


@pytest.mark.parametrize(("given", "shown"), ADDRESSES.items())
def test_what_is_shown_of_a_storage(given: str, shown: str) -> None:
    assert without_passwords(["tune", "--storage", given]) == ["tune", "--storage", shown]
    assert without_passwords([f"--storage={given}", "-c", "layout:xla:random"])[0] == f"--storage={shown}"
    tune = {"tune": {"storage": given, "trials": 3}}
    assert without_passwords(tune) == {"tune": {"storage": shown, "trials": 3}}
    assert without_passwords(["x://a:secret@h", "y", 3, None]) == ["x://a:***@h", "y", 3, None]


def test_a_library_that_quotes_the_password() -> None:
    """As written in the address, and decoded."""
    address = "postgresql://me:p%40ss@host/db?sslpassword=other"
    assert hide_passwords("tried 'p@ss', p%40ss and other", address) == "tried '***', *** and ***"
