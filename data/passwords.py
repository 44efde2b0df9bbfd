"""Removal of passwords from server addresses before they are shown or stored."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

#: Shown in place of an address whose password cannot be located.
UNREADABLE: Final = "***"
#: Parameters of an address that may be shown.
_PUBLIC: Final = frozenset({"host", "port", "user", "dbname", "sslmode"})
#: A plain user, host or database; other characters may come from a misplaced password.
_PLAIN: Final = re.compile(r"[\w.:/+%~\[\]-]*")


def without_password(address: str) -> str:
    """Return the address with its password and parameters replaced by ``***``.

    It becomes ``***`` if it cannot be parsed or its user, host or database has unusual characters.

    >>> without_password("postgresql+psycopg://me:secret@host:5432/tuning")
    'postgresql+psycopg://me:***@host:5432/tuning'
    >>> without_password("host=db password=secret")
    '***'
    """
    from sqlalchemy.engine import make_url

    if address.startswith(("journal:", "sqlite:")):
        return address  # files have no passwords
    try:
        url = make_url(address)
    except Exception:  # ArgumentError, or a ValueError for an invalid port
        return UNREADABLE
    if address.startswith("sqlite+") and url.password is None:
        return address
    if not all(_PLAIN.fullmatch(part or "") for part in (url.username, url.host, url.database)):
        return UNREADABLE
    return url.set(query={}).render_as_string() + ("?***" if url.query else "")


def hide_passwords(text: str, address: str | None) -> str:
    """Replace the secrets of a valid address by ``***`` in a text, such as an error message."""
    from sqlalchemy.engine import make_url

    if address is None or address.startswith("journal:"):
        return text
    url = make_url(address)
    secrets = [url.password]
    for key, values in url.normalized_query.items():
        if key not in _PUBLIC:
            secrets += values
    for secret in filter(None, secrets):
        text = text.replace(secret, "***").replace(quote(secret, safe=""), "***")
    return text
