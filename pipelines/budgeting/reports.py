"""What the first model of a collection leaves among the reports for others to show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from xlarank.data.collection import Collection
from xlarank.data.files import read_text
from xlarank.data.workspace import Workspace


def first_scores(workspace: Workspace, collection: Collection) -> Path:
    """Where the scores of a collection's first model lie."""
    return workspace.reports() / f"first-{'-'.join(collection.parts)}.json"


def read_first_scores(workspace: Workspace, collection: Collection) -> dict[str, Any]:
    """Scores on valid of a model that learned from train alone; empty where there are none.

    ``report`` is `metrics.summarise` of all graphs; ``example`` its graph of median score: for each configuration
    the ``predicted`` score and the ``measured`` cost (ns; tiles: over the normalizer).
    """
    try:
        found = dict(json.loads(read_text(first_scores(workspace, collection))))
        if found.get("report"):
            float(found["report"]["score"]["mean"]) + float(found["report"]["score"]["std"])
        return found
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return {}
