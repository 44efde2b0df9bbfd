"""Measure what more programs to learn from are worth to the trained models."""

from __future__ import annotations

from collections.abc import Sequence

from xlarank.data.errors import CollectionError, ModelError
from xlarank.data.ranges import thread_count
from xlarank.data.workspace import Workspace
from xlarank.models.fit_settings import FitSettings
from xlarank.models.trained import fingerprint, model_of
from xlarank.models.validation.learning_curve import LearningCurve, fits_of
from xlarank.pipelines.support.progress import Progress, Silent
from xlarank.pipelines.support.training_sets import learned_by
from xlarank.pipelines.support.workspace_collections import trained_collections


def learning_curve(
    workspace: Workspace, *, collections: Sequence[str] = (), threads: int = 0, progress: Progress | None = None
) -> tuple[dict[str, LearningCurve], dict[str, str]]:
    """Fit the rankers of the trained models on a quarter, half and all of the families that are not held out.

    With their parameters and rounds, one seed. `report` draws what is found, until the model is trained anew.
    Returns the curves by collection, and why others have none. Raises `ModelError` where nothing was trained.
    """
    progress = progress or Silent()
    workspace.require_writable()
    trained = trained_collections(workspace)
    if not trained:
        raise ModelError(f"there is no trained model in {workspace.root}", do="run train first")
    found: dict[str, LearningCurve] = {}
    left_out: dict[str, str] = {}
    for collection in trained:
        if collections and str(collection) not in collections:
            continue
        try:
            model = model_of(workspace, collection)
            training = learned_by(workspace, collection, model)
            settings = FitSettings(model.card.rounds, 0, thread_count(threads))
            progress.begin(f"learning curve of {collection}", fits_of(training.data.families))
            try:
                curve = LearningCurve.of(training, model.rankers[0], settings, progress.step)
            finally:
                progress.end()
            curve.save(workspace.learning_curve(collection), fingerprint(model.card))
            found[str(collection)] = curve
        except (CollectionError, ModelError) as error:
            left_out[str(collection)] = str(error)
    return found, left_out
