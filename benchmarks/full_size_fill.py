"""Stored rows as many as those of all graphs, from the rows of a share of them."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

import pyarrow.parquet as pq

from benchmarks.full_size_shapes import Shape
from xlarank.data.collection import Collection
from xlarank.data.files import atomic_write
from xlarank.data.workspace import Workspace
from xlarank.features.store import read_manifest, write_manifest


def fill(workspace: Workspace, collection: Collection, shapes: Sequence[Shape]) -> int:
    """Store the rows of every graph that was not built as a copy of one that was, under its own name.

    A split's built graphs are taken in turns, so that sizes stay spread as they are. Returns the number of copies.
    """
    made = 0
    for split in {shape.split for shape in shapes}:
        manifest = read_manifest(workspace, collection, split)
        assert manifest is not None
        built = sorted(name for name in manifest.graphs if "copy_of" not in manifest.graphs[name])
        missing = [s.name for s in shapes if s.split == split and s.name not in manifest.graphs]
        for number, name in enumerate(missing):
            original = built[number % len(built)]
            table = pq.read_table(workspace.graph_rows(collection, split, original))
            about = json.loads(table.schema.metadata[b"xlarank"])
            table = table.replace_schema_metadata({b"xlarank": json.dumps({**about, "name": name})})
            with atomic_write(workspace.graph_rows(collection, split, name)) as partial:
                pq.write_table(table, partial, compression="zstd", use_dictionary=False, write_statistics=False)
            if collection.kind == "layout":
                beside = workspace.graph_instances(collection, split, name)
                beside.unlink(missing_ok=True)
                os.link(workspace.graph_instances(collection, split, original), beside)
            manifest.graphs[name] = {**manifest.graphs[original], "copy_of": original}
        made += len(missing)
        write_manifest(workspace, collection, split, manifest)
    return made
