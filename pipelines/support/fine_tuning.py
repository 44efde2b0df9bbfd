"""Going on from a model that was trained before, with the labels at hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from xlarank.data.errors import CollectionError, ModelError
from xlarank.data.family import program_family
from xlarank.data.workspace import Workspace
from xlarank.models.base import Ranker
from xlarank.models.pretrained import pretrained_model
from xlarank.models.ranking_data import RankingData
from xlarank.models.trained import CARD, Continued, TrainedModel, fingerprint, load_model, model_of
from xlarank.models.validation.folds import family_folds
from xlarank.models.validation.metrics import judge
from xlarank.pipelines.support.training_sets import StoredTrainingSet
from xlarank.pipelines.support.workspace_collections import trained_collections

#: The ranker that comes with xlarank, as a model to continue.
SHIPPED: Final = "shipped"
#: How fast new trees learn beside the old ones, to be chosen among by folds.
RATES: Final = (1.0, 0.3)
#: Families, new to the model that is continued, from which on folds choose; fewer say too little.
FEWEST_FAMILIES: Final = 3
#: Rounds and rate where folds cannot choose: chosen on the embedded sample (docs/tpu-estimates.md).
DEFAULT_ROUNDS: Final = 100
DEFAULT_RATE: Final = 1.0


@dataclass(frozen=True)
class FineTuning:
    """A model to continue.

    Attributes:
        model: as it was trained.
        where: `SHIPPED`, or the folder that it was read from.
    """

    model: TrainedModel
    where: str

    @classmethod
    def find(cls, asked: str, workspace: Workspace) -> FineTuning:
        """By `SHIPPED`, the name of a collection with a model in the workspace, or the folder of a model.

        Raises `ModelError` where there is none.
        """
        if asked == SHIPPED:
            return cls(pretrained_model(), SHIPPED)
        trained = {str(collection): collection for collection in trained_collections(workspace)}
        if asked in trained:
            return cls(model_of(workspace, trained[asked]), str(workspace.model(trained[asked])))
        if (Path(asked) / CARD).exists():
            return cls(load_model(Path(asked)), asked)
        raise ModelError(
            f"there is no model {asked!r} to continue",
            expected=", ".join([SHIPPED, f"a folder with {CARD}", *trained]),
            do="pass --fine-tune with one of these",
        )

    def require_fit(self, training: StoredTrainingSet) -> None:
        """Raise `CollectionError` or `ModelError` unless the model can go on with these graphs."""
        card, manifest = self.model.card, training.manifest
        if card.kind != training.kind:
            raise CollectionError(
                f"{training.collection} holds {training.kind} graphs",
                expected=f"{card.kind} graphs, which the model of {card.collection} ranks",
                do="choose the collections to train with --collection",
            )
        if not self.model.shipped and card.recipe.code_hash != manifest.recipe.code_hash:
            raise ModelError(
                f"the rows of {training.collection} were made by feature code {manifest.recipe.code_hash}",
                expected=f"{card.recipe.code_hash}, which the model of {card.collection} was trained on",
                do="train that model again, or continue another",
            )

    def rankers(self, rate: float) -> list[Ranker[Any]]:
        """Unfitted rankers that go on, one of each seed of the model."""
        return [ranker.continuing(rate) for ranker in self.model.rankers]

    def folds(self, families: Sequence[str], most: int) -> list[list[int]]:
        """Folds of the graphs whose families the model has not learned from: only those tell how good it is."""
        known = {program_family(name) for name in self.known_graphs()}
        new = [family for family in families if family not in known]
        if len(set(new)) < 2:
            return []
        place = [number for number, family in enumerate(families) if family not in known]
        return [[place[number] for number in held] for held in family_folds(new, most)]

    def known_graphs(self) -> set[str]:
        """Names of all graphs that the model, and any that it continues itself, learned from."""
        card = self.model.card
        of = [*card.trained_on.values(), *card.also_from.values()]
        return {name for names in of for name in names} | set(card.continues.graphs if card.continues else ())

    def scores(self, data: RankingData, groups: Sequence[int]) -> dict[str, float]:
        """Scores of some graphs by the model as it is, by name."""
        found: dict[str, float] = {}
        columns = self.model.rankers[0].columns
        place = {name: number for number, name in enumerate(data.columns)}
        used = np.array([place[name] for name in columns], np.intp)
        for number in groups:
            rows = data.parts[number]
            matrix, instances = rows.matrix(None, used), data.instances_of(number)
            each = [ranker.predict(matrix, columns, instances) for ranker in self.model.rankers]
            score = np.mean(each, axis=0)[rows.group]
            found[data.names[number]] = judge(self.model.card.kind, score, rows.cost, rows.group)["score"]
        return found

    def told(self, rate: float) -> Continued:
        """What the card of the new model says of this one."""
        card = self.model.card
        return Continued(self.where, card.collection, fingerprint(card), rate, sorted(self.known_graphs()))


def advice(lead: float) -> str:
    """What to make of the difference that going on makes out of fold.

    >>> advice(0.01), advice(-0.01)
    ('', '; as it was it ranks them better: measure more graphs, or rank with that model')
    """
    return "" if lead >= 0 else "; as it was it ranks them better: measure more graphs, or rank with that model"


def told_start(tuning: FineTuning) -> str:
    """The model that is continued, for people."""
    name = "the ranker that comes with xlarank" if tuning.where == SHIPPED else f"the model at {tuning.where}"
    return f"goes on from {name} ({tuning.model.card.collection}, {len(tuning.known_graphs())} programs)"
