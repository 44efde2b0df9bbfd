"""Removal of passwords from addresses of servers before they are shown or stored."""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import quote

#: Shown in place of an address that cannot be parsed.
UNREADABLE: Final = "***"
#: Parameters of an address that are no secrets.
_OPEN: Final = frozenset({"host", "port", "user", "dbname", "sslmode"})
#: Characters of a part that may hold what was meant to be a password.
_SUSPICIOUS: Final = re.compile(r"[\s@;=&'\"]")


def without_password(address: str) -> str:
    """Return the address with ``***`` in place of its password; ``***`` alone where it cannot be parsed.

    >>> without_password("postgresql+psycopg://me:secret@host:5432/tuning")
    'postgresql+psycopg://me:***@host:5432/tuning'
    >>> without_password("host=db password=secret")
    '***'
    """
    from sqlalchemy.engine import make_url

    if address.startswith("journal:"):
        return address
    try:
        url = make_url(address)
    except Exception:  # ArgumentError, or a ValueError for a port that is no number
        return UNREADABLE
    if url.drivername.startswith("sqlite"):
        return address  # files have no passwords
    query = {key: value if key in _OPEN else "***" for key, value in url.query.items()}
    shown = [url.username or "", url.host or "", url.database or "", *map(str, query.values())]
    if any(_SUSPICIOUS.search(part) for part in shown):
        return UNREADABLE
    return url.set(query=query).render_as_string(hide_password=True).replace("%2A%2A%2A", "***")


def without_passwords(value: Any, option: str = "") -> Any:
    """Return command-line words or a configuration with the passwords of all addresses hidden.

    >>> without_passwords(["tune", "--storage=mysql://me:secret@host/db", "--storage", "password=x"])
    ['tune', '--storage=mysql://me:***@host/db', '--storage', '***']
    """
    if isinstance(value, dict):
        return {name: without_passwords(each, f"--{name}") for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [without_passwords(each, str(word)) for word, each in zip([option, *value], value, strict=False)]
    if not isinstance(value, str):
        return value
    name, equals, address = value.partition("=")
    if equals and name == "--storage":
        return f"{name}={without_password(address)}"
    return without_password(value) if option == "--storage" or "://" in value else value


def hide_passwords(text: str, address: str | None) -> str:
    """Return a library's message about a valid address, with ``***`` in place of its passwords."""
    from sqlalchemy.engine import make_url

    if address is None or address.startswith("journal:"):
        return text
    url = make_url(address)
    for secret in [url.password, *(value for key, value in url.query.items() if key not in _OPEN)]:
        for form in (str(secret), quote(str(secret), safe="")) if secret else ():
            text = text.replace(form, "***")
    return text
