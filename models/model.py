"""The model: members that score together, or a sum of columns, and the card that describes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from xlarank.data.errors import ModelError, counted, shortened
from xlarank.data.graph import Kind
from xlarank.features.catalogue import all_columns, columns_version
from xlarank.features.rows import GraphRows
from xlarank.models.arrays import Floats, Indices
from xlarank.models.card import ModelCard, blend_default
from xlarank.models.column_sum import ColumnSum
from xlarank.models.estimators import loss_of
from xlarank.models.files import read_model, write_model
from xlarank.models.losses import members_of, params_of
from xlarank.models.member import Member, largest_first, sum_by_key
from xlarank.models.objectives import blend, mean_rank
from xlarank.models.training_data import DATASET, TARGETS, FitSettings, TrainingData

if TYPE_CHECKING:  # imports polars
    from xlarank.features.store import Manifest

#: Name prefix of rules among rankers.
RULE: Final = "rule: "


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """A ranker: members or, without any, a fixed sum of columns (``rule``).

    Scores of seeds are averaged. The score of a seed is its member's score or, of several members
    with different losses, the weighted mean of their ranks within the graph. Methods that change a
    model return another one.

    Attributes:
        name, params: ranker (`xlarank.models.losses`) and its parameters.
        kind: kind of graphs that it ranks.
        members: fitted members, grouped by seed; empty before `fit`.
        columns: columns of the training rows; empty before `fit`.
        rule: sum of columns that ranks in place of members: an estimated time, or one of
            `xlarank.models.stored`.
        card: description; None unless saved or loaded.
        shipped: whether the model comes with the package, or is an estimated time; it uses a subset
            of the rows' columns.
        estimator: estimator of the user, copies of which `fit` fits in place of a ranker's members.
    """

    name: str
    kind: Kind
    params: Mapping[str, Any] = field(default_factory=dict)
    members: Sequence[Member] = ()
    columns: list[str] = field(default_factory=list)
    rule: ColumnSum | None = None
    card: ModelCard | None = None
    shipped: bool = False
    estimator: Any = None

    def __repr__(self) -> str:
        columns = counted(len(self.columns), "column")
        members = counted(len(self.members), "member")
        return f"<Model {self.name!r} of {self.kind} graphs: {members}, {columns}>"

    @classmethod
    def of(cls, name: str, kind: Kind, params: Mapping[str, Any] | None = None) -> Model:
        """Return an unfitted model; raises `ParameterError` for an unknown name or parameter."""
        return cls(name, kind, params_of(name, kind, params))

    @property
    def by_seed(self) -> list[list[Member]]:
        return [[*members] for _, members in groupby(self.members, lambda member: member.seed)]

    @property
    def is_time_model(self) -> bool:
        """Whether layouts are ranked by the work of the matrix unit alone, as in the dataset."""
        return self.rule is not None and self.rule.columns == DATASET.estimate["layout"]

    @property
    def ranks_without_trees(self) -> bool:
        """True if 0 rounds are a valid choice: initial scores alone rank, or there is a rule."""
        return all(member.ranks_without_trees for member in self.members)

    def fit(
        self,
        data: TrainingData,
        settings: FitSettings,
        seeds: int = 1,
        step: Callable[[int], object] = lambda seed: None,
    ) -> Model:
        """Return a model fitted with seeds from ``settings.seed`` on; call ``step`` with each.

        If no tree was grown, and the initial score ranks, that score is the model's rule. Raises
        `ModelError` for unsuitable data or number of rounds.
        """
        if self.estimator is not None:
            unfitted = [Member(loss_of(self.estimator), {}, self.kind)]
        else:
            unfitted = members_of(self.name, self.kind, self.params)
        members: list[Member] = []
        for seed in range(settings.seed, settings.seed + seeds):
            members += [member.fit(data, replace(settings, seed=seed)) for member in unfitted]
            step(seed)
        estimator = self.estimator
        model = Model(self.name, self.kind, self.params, members, data.columns, estimator=estimator)
        if any(member.booster.rounds for member in members) or not model.ranks_without_trees:
            return model
        return replace(model, members=(), rule=members[0].init_score)

    def score(self, rows: GraphRows) -> Floats:
        """Return ``(rows,)`` scores of the distinct configurations of a graph; lower is faster.

        They are means over seeds, with the fallback for unseen kernel families. Scores of different
        graphs are not comparable, unless they are times.
        """
        rows = self.select(rows)
        if self.rule is not None:
            scores = [self.rule.score(rows)]
        else:
            scores = []
            for members in self.by_seed:
                of_members = [member.score(rows) for member in members]
                scores.append(blend(of_members, [member.weight for member in members]))
        if not np.isfinite(scores).all():
            got = f"{self.title} returned scores that are not finite"
            raise ModelError(got, do="train again, or use a model from somebody you trust")
        if self.card is not None and self.card.fallback_note(rows):
            scores = [blend_default(rows, of_seed) for of_seed in scores]
        return np.asarray(np.mean(scores, axis=0))

    def staged(self, rows: GraphRows, every: int) -> Iterator[Floats]:
        """Yield ``(rows,)`` scores of the first seed every ``every`` rounds and after the last.

        The first are scores of 0 rounds if `ranks_without_trees`.
        """
        rows = self.select(rows)
        if self.rule is not None:
            yield self.rule.score(rows)
            return
        if self.estimator is not None:  # its rounds are its own
            yield self.members[0].score(rows)
            return
        members = self.by_seed[0]
        latest: list[Floats] = []
        for stage in zip_longest(*(member.staged(rows, every) for member in members)):
            # members that stopped early keep their last scores
            latest = [old if new is None else new for new, old in zip_longest(stage, latest)]
            yield blend(latest, [member.weight for member in members])

    def nanoseconds(self, scores: Floats) -> Floats | None:
        """Return the ``(rows,)`` times of scores without fallback; None if they only rank."""
        if self.rule is not None:
            estimates = [target.estimate["layout"] for target in TARGETS.values()]
            predicts = self.rule.weight == 1 and self.rule.columns in estimates
        else:
            predicts = all(member.predicts_times for member in self.members)
        return np.exp2(np.minimum(scores, 100.0)) if predicts else None

    def contributions(
        self, rows: GraphRows, first: int, second: int
    ) -> tuple[float, dict[str, float]]:
        """Return the score of ``first`` minus ``second``'s, and its nonzero parts by column.

        Without fallback; parts below 0 make the first faster. They are exact TreeSHAP contributions
        (Lundberg et al. 2018, *Consistent Individualized Feature Attribution for Tree Ensembles*),
        and sum to the difference up to rounding. Those of several losses are scaled to the
        difference of the ranks that a loss gives.
        """
        rows = self.select(rows)
        if self.rule is not None:
            pair = rows.matrix(np.array([first, second]))
            faster, slower = self.rule.values(pair, rows.columns)
            return float(faster - slower), self.rule.contributions(pair, rows.columns)
        total = 0.0
        parts = []
        for members in self.by_seed:
            weights = sum(member.weight for member in members)
            for member in members:
                difference, columns = member.contributions(rows, first, second)
                factor = 1.0
                if len(members) > 1:
                    ranks = mean_rank(member.score(rows))
                    ranked = float(ranks[first] - ranks[second]) * member.weight / weights
                    factor = ranked / difference if abs(difference) > 1e-12 else 0.0
                total += difference * factor
                parts.append(sum_by_key([columns], factor))
        seeds = len(self.by_seed)
        return total / seeds, sum_by_key(parts, 1 / seeds)

    def importance(self) -> dict[str, float]:
        """Return the members' mean share of the total gain by used column, largest first."""
        self._require_fitted()
        total = sum(member.weight for member in self.members)
        shares = []
        for member in self.members:
            shares.append(sum_by_key([member.importance()], member.weight / total))
        return largest_first(sum_by_key(shares))

    @property
    def title(self) -> str:
        """Name of the model in messages."""
        if self.shipped or self.card is None:
            return self.name
        return f"the model of {self.card.collection}"

    def select(self, rows: GraphRows) -> GraphRows:
        """Return rows with only the model's columns; raises `ModelError` for unsuitable ones."""
        self._require_fitted()
        return rows if rows.columns == self.columns else rows.only(self._indices(rows.columns))

    def require(self, manifest: Manifest | None = None) -> None:
        """Raise `ModelError` unless the model matches a manifest's rows, or rows of this code."""
        card = self.require_card()
        self._indices(manifest.columns if manifest else all_columns(self.kind))
        version = manifest.recipe.columns_version if manifest else columns_version(self.kind)
        if version != card.recipe.columns_version and not self.shipped:
            got = f"the rows were computed as version {version} of the columns"
            expected = f"{card.recipe.columns_version}, which {self.title} was trained on"
            raise ModelError(got, expected=expected, do="run build-features, then train again")

    def require_card(self) -> ModelCard:
        """Return the card; raises `ModelError` for a model that was neither saved nor loaded."""
        if self.card is None:
            raise ModelError("the model has no card", do="save it first")
        return self.card

    def save(self, folder: Path, card: ModelCard) -> Model:
        """Write the model in place of an earlier one and return it with the completed card.

        Not safe for concurrent saves. Raises `WorkspaceError`, and `ModelError` before an earlier
        model is replaced if this one could not be read back.
        """
        self._require_fitted()
        card = replace(
            card,
            model=self.name,
            params={**self.params},
            columns=self.columns,
            seeds=len(self.by_seed) or card.seeds,
        )
        if self.rule is not None:
            card = replace(card, rule=[*self.rule.columns], rule_weight=self.rule.weight)
        return replace(self, card=write_model(folder, self.members, card))

    @classmethod
    def load(cls, folder: Path) -> Model:
        """Read a model; raises `ModelError` if it is missing or damaged."""
        card, members = read_model(folder)
        params = params_of(card.model, card.kind, card.params)
        rule = ColumnSum(tuple(card.rule), card.rule_weight) if card.rule else None
        return cls(card.model, card.kind, params, members, card.columns, rule, card)

    def _require_fitted(self) -> None:
        if not self.columns:
            raise ModelError("the ranker was not trained", do="call fit or load first")

    def _indices(self, columns: Sequence[str]) -> Indices:
        """Return the indices of the model's columns among those of rows.

        Raise `ModelError`, naming the differences, if any is missing or, unless the model is a
        shipped one, if there are others.
        """
        own = {*self.columns}
        missing = [name for name in self.columns if name not in columns]
        extra = [name for name in columns if name not in own]
        differences = []
        for label, names in (("lack", missing), ("add", [] if self.shipped else extra)):
            if names:
                differences.append(f"{label} {len(names)} ({shortened(names, 5)})")
        indices = [index for index, name in enumerate(columns) if name in own]
        if differences or [columns[index] for index in indices] != self.columns:
            problem = " and ".join(differences) or "have the same columns in another order"
            expected = f"the {len(self.columns)} columns of the model"
            do = "run build-features again, or train again"
            raise ModelError(f"the rows {problem}", expected=expected, do=do)
        return np.array(indices, np.intp)
