"""Make a table of results again and keep it for the site.

    python -m benchmarks.results --table measured --data-root ~/data/tpugraphs

Writes ``benchmarks/results/<version>.json`` and from it the tables of the README and of the pages
in docs/; without ``--table`` only these.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

from benchmarks.results.stored import markdown, path_of, read, update_documents, write
from benchmarks.results.tables import TABLES, Job
from xlarank.data.collection import SAMPLE, find_data_root


def main() -> None:
    about = "\n".join(f"  {name}: {function.__doc__}" for name, function in TABLES.items())
    parser = argparse.ArgumentParser(
        description=(__doc__ or "") + f"\n{about}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--table", action="append", default=[], choices=[*TABLES], help="default: none"
    )
    parser.add_argument(
        "--data-root", type=Path, default=SAMPLE, help="default: the embedded sample"
    )
    parser.add_argument(
        "--workspace", type=Path, help="for features; default: a folder that is removed"
    )
    parser.add_argument(
        "--out", type=Path, default=path_of(), help="default: the file of this version"
    )
    parser.add_argument(
        "--collection", action="append", default=[], help="rows of others stay; default: all"
    )
    args = parser.parse_args()
    for name in args.table:
        with tempfile.TemporaryDirectory() as folder:
            workspace = args.workspace or Path(folder) / "work"
            table = TABLES[name](Job(find_data_root(args.data_root), workspace, args.collection))
        if args.collection and (before := read(args.out).get(name)):
            made = {row[0] for row in table.rows}
            kept = [row for row in before.rows if row[0] not in made]
            table = replace(table, rows=sorted([*kept, *table.rows], key=lambda row: str(row[0])))
        write(args.out, name, table)
        print(markdown(table))
    if args.out == path_of():
        update_documents(read(args.out))


if __name__ == "__main__":
    main()
