"""Rankers by name, their best parameters, and trained models on disk: boosters and a card
(JSON).
"""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np

from xlarank.data.collection import Collection
from xlarank.data.errors import (
    CollectionError,
    ModelError,
    ParameterError,
    WorkspaceError,
    did_you_mean,
)
from xlarank.data.files import from_json, new_mode, read_bytes, read_text, write_json
from xlarank.data.graph import Kind
from xlarank.data.workspace import Workspace
from xlarank.features.attribution import Walk
from xlarank.features.rows import GraphRows, Recipe
from xlarank.features.store import Manifest
from xlarank.models.arrays import Floats, Indices
from xlarank.models.base import Parts, Ranker, column_indices, require_columns
from xlarank.models.params import RankerParams
from xlarank.models.rankers.boosted import LambdaRank
from xlarank.models.rankers.ensemble import MEMBERS, Ensemble
from xlarank.models.rankers.sibling import SiblingRanker
from xlarank.models.rankers.time_trees import TimeTrees
from xlarank.models.validation.calibration import Calibration
from xlarank.models.validation.folds import Fallback

CARD: Final = "model.json"
#: Rankers for collections without a model, made by ``python -m benchmarks.pretrain``; see
#: ``shipped/README.md``.
SHIPPED: Final = Path(__file__).parent / "shipped"
#: Nominal collection of the shipped layout model; it has no data.
SHIPPED_COLLECTION: Final = "layout:tpu:any"

RANKERS: Final[dict[str, type[Ranker[Any]]]] = {
    **MEMBERS,
    **{ranker.name: ranker for ranker in (Ensemble, SiblingRanker, TimeTrees)},
}
DEFAULT: Final = LambdaRank.name


def ranker_class(name: str) -> type[Ranker[Any]]:
    """Return the class of a ranker; raises `ParameterError` for an unknown name."""
    if name not in RANKERS:
        do = did_you_mean(str(name), RANKERS)
        raise ParameterError(f"{name!r} is not a model", expected=", ".join(RANKERS), do=do)
    return RANKERS[name]


@dataclass(frozen=True)
class BestParams:
    """Best trial of a study by ``select``, its out-of-fold scores, and the families that each fold
    holds out.
    """

    model: str
    params: dict[str, Any]
    rounds: int
    mean: float
    std: float
    select: str
    graphs: dict[str, float]
    trial: int
    folds: list[list[str]]
    code_hash: str

    def save(self, folder: Path) -> None:
        write_json(best_file(folder, self.model), asdict(self))


def best_file(folder: Path, model: str) -> Path:
    return folder / f"best-{model}.json"


def load_best(folder: Path, model: str) -> BestParams | None:
    """Return the best parameters of a ranker, or None without a study; raises `ModelError` for a
    broken file.
    """
    path = best_file(folder, model)
    if not path.exists():
        return None
    try:
        best = from_json(BestParams, json.loads(read_text(path)))
        if best.model != model:
            raise ValueError(f"it is about {best.model!r}")
        return best
    except (OSError, ValueError, TypeError, RecursionError) as error:
        got = f"{path} cannot be read ({error})"
        raise ModelError(
            got, expected="the best parameters", do="remove it, or tune again"
        ) from error


def params_for(folder: Path, model: str, kind: Kind) -> tuple[RankerParams, bool]:
    """Return the parameters of a ranker and whether any were tuned; ensemble members have their own
    studies.
    """
    best = load_best(folder, model)
    values = dict(best.params) if best else {}
    members = tuned_members(folder, model, kind)
    if members:
        values["members"] = {**values.get("members", {}), **members}
    try:
        params = ranker_class(model).params_class.of(kind, values)
    except ModelError as error:
        got = f"{best_file(folder, model)} cannot be used: {error.got}"
        do = f"{error.do + ', or ' if error.do else ''}remove it, or tune again"
        raise ModelError(got, expected=error.expected, do=do) from error
    return params, best is not None or bool(members)


def tuned_members(folder: Path, model: str, kind: Kind) -> dict[str, dict[str, Any]]:
    """Return the parameters of an ensemble's tuned members; empty for other rankers."""
    if "members" not in ranker_class(model).params_class.declared():
        return {}
    members = {name: params_for(folder, name, kind) for name in ranker_class(model).part_names}
    return {name: params.values() for name, (params, tuned) in members.items() if tuned}


@dataclass(frozen=True)
class Continued:
    """Model that another was warm-started from; ``where`` is "shipped" or a folder."""

    where: str
    collection: str
    fingerprint: str
    rate: float
    graphs: list[str]


@dataclass
class ModelCard:
    """Description of a trained model, as written to ``model.json``.

    Attributes:
        rounds: number of rounds, excluding those of the model that it ``continues``, if any.
        folds: out-of-fold metrics, ``{graph: {metric: value}}``; empty without folds.
        folds_by: unit that folds hold out, a key of `xlarank.models.validation.folds.FOLDS_OF`.
        kinds: kernel families known to be in the training data; empty for layouts.
        fallback: fallback for unseen kernel families; None if it was not evaluated.
        also_from, also_weights: training graphs, and weight (default 1), of other collections by
            name.
        seeds: checksum of each booster by folder.
    """

    collection: str
    model: str
    params: dict[str, Any]
    rounds: int
    tuned: bool
    recipe: Recipe
    columns: list[str]
    trained_on: dict[str, list[str]]
    folds: dict[str, dict[str, float]]
    folds_by: str = "family"
    target: str = ""
    kinds: list[str] = field(default_factory=list)
    fallback: Fallback | None = None
    select: str = "mean"
    also_from: dict[str, list[str]] = field(default_factory=dict)
    also_weights: dict[str, float] = field(default_factory=dict)
    continues: Continued | None = None
    versions: dict[str, str] = field(default_factory=dict)
    seeds: dict[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> Kind:
        return Collection.parse(self.collection).kind

    @property
    def known_graphs(self) -> set[str]:
        """Names of all training graphs from any collection, including those of the continued
        model.
        """
        earlier = self.continues.graphs if self.continues else []
        return {
            name
            for names in (*self.trained_on.values(), *self.also_from.values(), earlier)
            for name in names
        }


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores ``(seeds, rows)`` of one graph; lower is faster. Not comparable across graphs.

    ``fallback`` describes the fallback for an unseen kernel family, if it was used.
    """

    per_seed: Floats
    fallback: str = ""

    @property
    def mean(self) -> Floats:
        return np.asarray(self.per_seed.mean(axis=0))


@dataclass(frozen=True)
class TrainedModel:
    """Model of a collection, or a shipped one, which uses a subset of the rows' columns."""

    card: ModelCard
    rankers: list[Ranker[Any]]
    calibration: Calibration | None = None
    shipped: bool = False

    @property
    def name(self) -> str:
        return "the shipped ranker" if self.shipped else self.card.collection

    def require(self, manifest: Manifest | None = None) -> None:
        """Raise `ModelError` unless the model matches the manifest's rows, by default those of the
        current code.
        """
        card = self.card
        settings = self.card.recipe.settings
        columns = manifest.columns if manifest else settings.columns(card.kind)
        if self.shipped:
            self._indices(columns)
            return
        code_hash = manifest.recipe.code_hash if manifest else settings.code_hash(card.kind)
        require_columns(columns, card.columns)
        if code_hash != card.recipe.code_hash:
            got = f"the rows were computed by version {code_hash} of the feature code"
            expected = (
                f"{card.recipe.code_hash}, which the model of {card.collection} was trained on"
            )
            raise ModelError(got, expected=expected, do="run build-features, then train again")

    def select(self, rows: GraphRows) -> GraphRows:
        """Return rows with only the model's columns; raises `ModelError` if any is missing."""
        return rows if rows.columns == self.card.columns else rows.only(self._indices(rows.columns))

    def _indices(self, columns: list[str]) -> Indices:
        do = (
            "run build-features with `tier=full`, or make the model again: python -m "
            "benchmarks.pretrain"
        )
        return column_indices(self.card.columns, columns, "the model", do)

    def score(self, graph: GraphRows) -> Scores:
        """Score the distinct configurations of a graph, with the fallback for unseen kernel
        families.
        """
        rows = graph.matrix()
        scores = np.stack(
            [ranker.predict(rows, graph.columns, graph.instances) for ranker in self.rankers]
        )
        if not np.isfinite(scores).all():
            got = f"the model of {self.card.collection} returned scores that are not finite"
            raise ModelError(got, do="train again, or use a model from somebody you trust")
        fallback = self.card.fallback
        unseen = graph.unseen_kinds(self.card.kinds)
        if not (fallback and fallback.weight and unseen) or fallback.ranks(graph) is None:
            return Scores(scores)
        note = f"unseen kernel family ({' or '.join(unseen)}): {fallback}, the rest on the model"
        return Scores(
            np.stack([fallback.blend(graph, seed_scores) for seed_scores in scores]), note
        )

    def contributions(
        self, graph: GraphRows, now: int, then: int, walk: Walk | None = None
    ) -> Parts:
        """Decompose the difference of two scores, ``now`` minus ``then``, ignoring the fallback."""
        parts = (ranker.contributions(graph, now, then, walk) for ranker in self.rankers)
        return Parts.total(parts, 1 / len(self.rankers))

    @property
    def is_time_model(self) -> bool:
        """Whether the model ranks layouts by `xlarank.features.layout.time_model`, without
        trees.
        """
        return self.card.kind == "layout" and all(ranker.is_time_model for ranker in self.rankers)

    def nanoseconds(self, scores: Scores) -> Floats | None:
        """Return predicted times, ``(rows,)``; None if scores only rank or a fallback was used."""
        return None if scores.fallback else self.rankers[0].nanoseconds(scores.mean)


def save_model(folder: Path, card: ModelCard, rankers: Sequence[Ranker[Any]]) -> None:
    """Write boosters into a new folder, then the card that refers to it; not safe for concurrent
    saves.
    """
    card.seeds = {}
    libraries = ("lightgbm", "xgboost", "xgboost-cpu", "numpy", "scipy", "xlarank")
    card.versions = {
        "python": platform.python_version(),
        **dict.fromkeys(libraries, "not installed"),
    }
    for name in libraries:
        with suppress(ModuleNotFoundError):  # optional, or a clone that was not installed
            card.versions[name] = version(name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        new_folder = Path(tempfile.mkdtemp(dir=folder, prefix="boosters-"))
        new_folder.chmod(new_mode(0o777))
        with ExitStack() as on_failure:
            on_failure.callback(shutil.rmtree, new_folder, ignore_errors=True)
            for number, ranker in enumerate(rankers):
                seed = new_folder / f"seed-{number}"
                seed.mkdir()
                ranker.save(seed)
                card.seeds[f"{new_folder.name}/{seed.name}"] = _checksum(seed)
            write_json(folder / CARD, asdict(card))
            on_failure.pop_all()
    except OSError as error:
        got = f"cannot write {folder} ({error.strerror or error})"
        do = "choose another workspace or change permissions"
        raise WorkspaceError(got, expected="a folder that can be written to", do=do) from error
    for old in {*folder.glob("boosters-*")} - {new_folder}:
        shutil.rmtree(old, ignore_errors=True)


def read_card(folder: Path) -> ModelCard:
    """Read the card of a model; raises `ModelError` if it is missing or damaged."""
    path = folder / CARD
    if not path.exists():
        raise ModelError(f"there is no model at {folder}", expected=CARD, do="run train first")
    try:
        card = from_json(ModelCard, json.loads(read_text(path)))
        Collection.parse(card.collection)
    except (OSError, ValueError, TypeError, RecursionError, CollectionError) as error:
        raise _unusable(path, error) from error
    return card


def load_model(folder: Path) -> TrainedModel:
    """Read a model; raises `ModelError` if it is missing or damaged."""
    while True:
        card = read_card(folder)
        try:
            return _load(folder, card)
        except ModelError:
            if read_card(folder).seeds == card.seeds:
                raise  # otherwise another process has replaced the model


def _load(folder: Path, card: ModelCard) -> TrainedModel:
    try:
        ranker_type = ranker_class(card.model)
        rankers: list[Ranker[Any]] = []
        for name, checksum in card.seeds.items():
            seed = (folder / name).resolve()
            if seed != folder.resolve() / name or Path(name).is_absolute():
                raise ValueError(f"{name} lies outside the model")
            if _checksum(seed) != checksum:
                raise ValueError(f"{name} has changed since it was written")
            rankers.append(ranker_type.load(seed))
        if not rankers:
            raise ValueError("no boosters")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _unusable(folder / CARD, error) from error
    return TrainedModel(card, rankers, Calibration.load(folder, fingerprint(card)))


def _unusable(path: Path, error: Exception) -> ModelError:
    return ModelError(
        f"{path} cannot be used ({error})", expected="a complete model", do="run train again"
    )


def fingerprint(card: ModelCard) -> str:
    """Return a hash of the checksums of the boosters."""
    return hashlib.sha256("".join(sorted(card.seeds.values())).encode()).hexdigest()[:16]


def model_of(workspace: Workspace, collection: Collection) -> TrainedModel:
    """Load the model of a collection; raises `ModelError` if it is missing or of another
    collection.
    """
    folder = workspace.model(collection)
    if not (folder / CARD).exists():
        raise ModelError(f"{collection} has no trained model", do="run train first")
    model = load_model(folder)
    if model.card.collection != str(collection):
        owner = model.card.collection
        do = (
            f"run train for {collection}, or pass `model_from={owner}` with that model in its "
            "own folder"
        )
        raise ModelError(
            f"the model at {folder} is of {owner}", expected=f"a model of {collection}", do=do
        )
    return model


def _checksum(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if not path.is_dir()):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + read_bytes(path))
    return digest.hexdigest()


@cache
def pretrained_model(kind: Kind = "layout") -> TrainedModel:
    """Load the shipped model of a kind of graphs; raises `ModelError` if the installation lacks
    it.
    """
    return replace(load_model(SHIPPED / kind), shipped=True)


def trained_collections(workspace: Workspace) -> list[Collection]:
    """Return the collections with a model in the workspace, sorted."""
    root = workspace.root / "models"
    return sorted(
        Collection(path.relative_to(root).parts[:-1]) for path in root.glob(f"*/**/{CARD}")
    )
