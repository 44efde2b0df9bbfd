"""Make a table of results again and keep it for the site.

    python -m benchmarks.results --table measured --data-root ~/data/tpugraphs

Writes ``benchmarks/results/<version>.json``, from which the site's tables are made.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchmarks.results.stored import markdown, path_of, write
from benchmarks.results.tables import TABLES
from xlarank.data.root import SAMPLE, find_data_root


def main() -> None:
    """Run the command."""
    about = "\n".join(f"  {name}: {function.__doc__}" for name, function in TABLES.items())
    parser = argparse.ArgumentParser(
        description=(__doc__ or "") + f"\n{about}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--table", action="append", required=True, choices=[*TABLES])
    parser.add_argument("--data-root", type=Path, default=SAMPLE, help="default: the embedded sample")
    parser.add_argument("--workspace", type=Path, help="for features; default: a folder that is removed")
    parser.add_argument("--out", type=Path, default=path_of(), help="default: the file of this version")
    asked = parser.parse_args()
    root = find_data_root(asked.data_root)
    for name in asked.table:
        with tempfile.TemporaryDirectory() as folder:
            table = TABLES[name](root, asked.workspace or Path(folder) / "work")
        write(asked.out, name, table)
        print(markdown(table))


if __name__ == "__main__":
    main()
