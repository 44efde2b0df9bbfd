"""Which collections the workspace holds rows or models of."""

from __future__ import annotations

from collections.abc import Sequence

from xlarank.data.collection import Collection, choose
from xlarank.data.workspace import Workspace
from xlarank.features.store import stored_collections
from xlarank.models.trained import CARD


def chosen_collections(workspace: Workspace, asked: Sequence[str]) -> list[Collection]:
    """Collections with stored features; raises `CollectionError` for others."""
    return choose(asked, stored_collections(workspace), where=f"the workspace {workspace.root}")


def trained_collections(workspace: Workspace) -> list[Collection]:
    """Collections that have a model in the workspace, sorted."""
    root = workspace.root / "models"
    return sorted(Collection(path.relative_to(root).parts[:-1]) for path in root.glob(f"*/**/{CARD}"))
