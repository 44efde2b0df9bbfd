"""The Python API: names imported late, columns as tables, and GraphRanker."""

import pickle
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import xlarank
from tests.graphs import save_npz
from tests.pipelines.trees import even, layout_graph, tile_graph
from xlarank.data.collection import SAMPLE
from xlarank.data.errors import (
    MAX_THREADS,
    GraphFileError,
    ModelError,
    ParameterError,
    XlarankError,
)
from xlarank.features.assembly import assemble
from xlarank.features.rows import KEYS
from xlarank.models.model import Model
from xlarank.models.training_data import TARGETS, FitSettings, TrainingData
from xlarank.models.validation.metrics import graph_metrics

TILES = SAMPLE / "npz/tile/cpu/train"
LAYOUT = SAMPLE / "npz/layout/cpu/random/valid/mlp__a.npz"


@pytest.fixture(scope="module")
def kernels():
    names = ("bmm__a", "bmm__b", "matmul__a", "matmul__b")
    return [xlarank.read_graph(TILES / f"{name}.npz") for name in names]


@pytest.fixture(scope="module")
def fitted(kernels):
    options = {"n_estimators": 20, "n_jobs": 1, "target": "cpu"}
    return xlarank.GraphRanker("ranknet", **options).fit(kernels[:3])


def test_features_have_a_row_per_distinct_configuration_and_reprs_are_one_line(tmp_path):
    graph = xlarank.read_graph(save_npz(tmp_path / "x__a.npz", layout_graph(3)))
    rows = assemble(graph)
    configs = "24 configurations (22 distinct, 24 measured)"
    counts = f"{graph.nodes} nodes, {len(graph.edges)} edges, {configs}"
    assert repr(graph) == f"<LayoutGraph 'x__a': {counts}, 2 configurable nodes>"
    with pytest.raises(GraphFileError):
        xlarank.read_graph(tmp_path / "x__a.npz", kind="tile")
    ranking = repr(xlarank.rank(graph, tmp_path, target="tpugraphs"))
    assert ranking.startswith("<Ranking of 'x__a' by estimated time: ")
    assert len(ranking) < 200
    table = xlarank.compute_features(graph, target="tpugraphs")
    with pytest.raises(ParameterError, match="x__a does not say its hardware; expected tpugraphs"):
        xlarank.compute_features(graph)
    assert table.columns == [*KEYS, *rows.columns] == table.to_pandas().columns.tolist()
    assert table["repeats"].sum() == 24
    np.testing.assert_array_equal(table[:, len(KEYS) :].to_numpy(), rows.matrix())
    assert set(table.dtypes[len(KEYS) :]) == {pl.Float32}


def test_graph_ranker_predicts_as_the_ranker_of_that_name(kernels, fitted):
    *rows, last = (assemble(graph) for graph in kernels)
    data = TrainingData.from_graphs(rows, TARGETS["cpu"])
    model = Model.of("ranknet", "tile").fit(data, FitSettings(20, threads=1))
    expected = model.score(last)[last.group]
    for graph in (kernels[3], TILES / "matmul__b.npz"):
        assert fitted.predict(graph).tolist() == expected.tolist()
    metrics = graph_metrics("tile", expected, last.cost, last.group)
    assert fitted.score([kernels[3]]) == metrics["score"]
    assert fitted.graphs_ == ["bmm__a", "bmm__b", "matmul__a"]
    assert (fitted.kind_, fitted.left_out_) == ("tile", {})
    assert fitted.feature_names_in_.tolist() == data.columns
    assert fitted.n_features_in_ == len(data.columns)


def test_graphs_that_cannot_be_trained_on_are_named(kernels, tmp_path):
    ranker = xlarank.GraphRanker("ranknet", n_estimators=2, n_jobs=1, target="cpu")
    withheld = save_npz(tmp_path / "withheld.npz", tile_graph(1, labelled=False))
    equal = save_npz(tmp_path / "equal.npz", even(tile_graph(2)))
    ranker.fit([kernels[0], withheld, equal, kernels[2]])
    reasons = {"withheld": "it has no labels", "equal": "all its configurations cost the same"}
    assert (ranker.graphs_, ranker.left_out_) == (["bmm__a", "matmul__a"], reasons)
    with pytest.raises(ModelError, match="none of 2 graphs can be trained on"):
        ranker.fit([withheld, equal])
    for graph in (withheld, equal):
        assert len(ranker.predict(graph)) == 24
        with pytest.raises(ModelError, match="cannot be scored"):
            ranker.score([graph])


def test_bad_graphs_are_refused(kernels, fitted, tmp_path):
    fresh = xlarank.GraphRanker("ranknet")
    for method, graphs, message in (
        (fresh.predict, kernels[0], "was not fitted; call fit first"),
        (fresh.score, kernels, "was not fitted; call fit first"),
        *((method, [], "there are no graphs; expected") for method in (fresh.fit, fitted.score)),
        (fresh.fit, [kernels[0], LAYOUT], "the graphs are layout and tile graphs"),
        (fitted.predict, LAYOUT, "mlp__a is a layout graph; expected a tile graph"),
        (fitted.predict, tmp_path / "absent.npz", "does not exist"),
    ):
        with pytest.raises((ModelError, GraphFileError), match=message):
            method(graphs)
    for graphs, message in (
        (kernels[0], "are <TileGraph 'bmm__a'.*"),
        (None, "are None"),
        (3, "are 3"),
    ):
        with pytest.raises(ParameterError, match=f"{message}; expected a list of graphs") as error:
            fresh.fit(graphs)
        assert isinstance(error.value, XlarankError)


def test_all_names_exist_and_are_documented():
    assert all(getattr(xlarank, name) is not None for name in xlarank.__all__)
    assert set(xlarank.__all__) <= set(dir(xlarank))
    page = (Path(xlarank.__file__).parent.parent / "docs/reference/api.md").read_text()
    for name in set(xlarank.__all__) - {"__version__", "SAMPLE", "XlarankError"}:
        assert f".{name}\n" in page, f"docs/reference/api.md lacks {name}"
    with pytest.raises(AttributeError, match="'xlarank' has no attribute 'rnak'"):
        xlarank.rnak  # noqa: B018


def test_predictions_depend_on_seed_and_target_alone(kernels, fitted):
    def refitted(**params):
        return xlarank.GraphRanker(**fitted.get_params()).set_params(**params).fit(kernels[:3])

    expected = fitted.predict(kernels[3]).tolist()
    for ranker in (pickle.loads(pickle.dumps(fitted)), refitted()):
        assert ranker.predict(kernels[3]).tolist() == expected
    tpu = refitted(target="tpu-v3")
    for ranker in (refitted(random_state=1), tpu):
        assert ranker.predict(kernels[3]).tolist() != expected
    cpu_columns = ("estimate__", "inner__")
    assert not [name for name in tpu.model_.importance() if name.startswith(cpu_columns)]
    assert [name for name in fitted.model_.importance() if name.startswith(cpu_columns)]


def test_parameters_are_returned_and_can_be_changed():
    ranker = xlarank.GraphRanker("ranknet", n_estimators=7, num_leaves=5)
    common = {"ranker": "ranknet", "random_state": 0, "n_jobs": -1}
    common |= {"target": None, "estimator": None}
    assert ranker.get_params() == {**common, "n_estimators": 7, "num_leaves": 5}
    assert ranker.set_params(n_estimators=9, num_leaves=6) is ranker
    assert ranker.get_params() == {**common, "n_estimators": 9, "num_leaves": 6}
    assert repr(ranker).startswith("GraphRanker('ranknet', n_estimators=9, ")
    assert "num_leaves=6" in repr(ranker)
    same = eval(repr(ranker), {"GraphRanker": xlarank.GraphRanker})
    assert same.get_params() == ranker.get_params()


def test_wrong_parameters_are_refused():
    ranker = xlarank.GraphRanker("ranknet", n_estimators=7)
    wrong = {"n_estimators": -3, "n_jobs": -2, "random_state": None}
    for params, message in (
        ({"num_leafs": 5}, "'num_leafs' is not a parameter of ranknet; .*did you mean num_leaves"),
        ({"ranker": "rnaknet"}, "'rnaknet' is not a model; .*did you mean ranknet"),
        *(({name: value}, f"{name} is {value}") for name, value in wrong.items()),
        ({"n_estimator": 3}, "did you mean n_estimators"),
        ({"n_jobs": 10**6}, f"n_jobs is 1000000; expected .* from -1 to {MAX_THREADS}"),
        ({"target": "gpu"}, "`target` is 'gpu'; expected tpugraphs"),
    ):
        for method in (partial(xlarank.GraphRanker, ranker="ranknet"), ranker.set_params):
            with pytest.raises(ValueError, match=message) as error:
                method(**params)
            assert isinstance(error.value, XlarankError)
        assert ranker.get_params() == xlarank.GraphRanker("ranknet", n_estimators=7).get_params()


def test_scikit_learn_clones_a_ranker_and_searches_its_parameters(kernels):
    selection = pytest.importorskip("sklearn.model_selection")
    ranker = xlarank.GraphRanker("ranknet", n_estimators=3, n_jobs=1)
    search = selection.GridSearchCV(ranker, {"num_leaves": [3, 7]}, cv=2).fit(kernels)
    assert set(search.best_params_) == {"num_leaves"} and search.best_score_ <= 1


def test_graph_ranker_of_a_gpu_is_saved_loaded_and_ranks_in_a_workspace(tmp_path):
    folder = SAMPLE / "npz/layout/nvidia-h200/random"
    *graphs, other = sorted((folder / "train").glob("*.npz"))
    ranker = xlarank.GraphRanker(
        n_estimators=3, random_state=4, n_jobs=-1, target="nvidia-h200"
    ).fit(graphs[:3])
    place = tmp_path / "work/models/layout/nvidia-h200/random"
    ranker.save(place, "layout:nvidia-h200:random")
    again = xlarank.GraphRanker.load(place)
    assert (again.target, again.graphs_) == ("nvidia-h200", sorted(ranker.graphs_))
    assert again.get_params() == ranker.get_params() | again.params
    scores = ranker.predict(other)
    assert again.predict(other).tolist() == scores.tolist() and np.ptp(scores) > 0
    assert xlarank.rank(other, tmp_path / "work").ranked_by == "estimated time", "without folds"
    ranking = xlarank.rank(other, tmp_path / "work", model_from="trained")
    assert ranking.scores.tolist() == scores.tolist()
    message = r"`target` is .*; expected tpugraphs for .*: tpu-v3, .*, cpu or nvidia-"
    for target in ("h300", "gpu", "tpu", ""):
        with pytest.raises(ParameterError, match=message):
            xlarank.GraphRanker(target=target)


def test_the_folder_of_the_files_names_the_target(tmp_path):
    """Columns are those of the hardware, also by `compute_features`; a named target is kept."""
    source = "nvidia-h200"
    folder = tmp_path / f"npz/layout/{source}/random/train"
    paths = [str(save_npz(folder / f"{name}.npz", layout_graph(n))) for n, name in enumerate("ab")]
    ranker = xlarank.GraphRanker(n_estimators=2, n_jobs=1)
    named = xlarank.GraphRanker(n_estimators=2, n_jobs=1, target=source)
    loaded = [xlarank.read_graph(path) for path in paths]
    assert (ranker.fit(paths).target_, ranker.target) == (source, None)
    assert ranker.predict(paths[0]).tolist() == named.fit(loaded).predict(paths[0]).tolist()
    assert named.target_ == source == ranker.fit(loaded).target_
    bare = save_npz(tmp_path / "x.npz", layout_graph(1))
    with pytest.raises(ParameterError, match=r"x does not say its hardware.*; pass target="):
        ranker.fit([*loaded, bare])
    with pytest.raises(ParameterError, match="the graphs are for cpu, nvidia-h200; expected"):
        ranker.fit([*loaded, sorted((SAMPLE / "npz/layout/cpu/random/valid").glob("*.npz"))[0]])
    assert xlarank.GraphRanker(n_estimators=2, n_jobs=1, target="cpu").fit(paths).target_ == "cpu"
    rows = assemble(loaded[0], source)
    computed = xlarank.compute_features(paths[0])["relayout__time__log"]
    column = rows.columns.index("relayout__time__log")
    assert computed.to_list() == rows.matrix()[:, column].tolist() and computed.sum() > 0
    dataset = xlarank.compute_features(loaded[0], target="tpugraphs")
    assert dataset["relayout__time__log"].sum() == 0
    model = ranker.fit(paths).save(tmp_path / "model")
    assert model.card.collection == f"layout:{source}:own"
    assert repr(model).startswith("<Model 'lambdarank' of layout graphs: 1 member, ")
    assert len(repr(model)) < 100


IMPORTING = """
import os
import polars  # sets a variable itself
before = dict(os.environ)
hooks = []
os.register_at_fork = lambda **functions: hooks.append(functions)
import xlarank
for name in xlarank.__all__:
    getattr(xlarank, name)
import xlarank.models.boosters.lightgbm
assert dict(os.environ) == before
assert not [hook for hook in hooks if "xlarank" in str(hook)]
"""


def test_imports_change_nothing_in_the_process():
    subprocess.run([sys.executable, "-c", IMPORTING], check=True)


RANKING = """
import sys
from xlarank.cli.app import main
sys.argv = ["xlarank", "rank", *sys.argv[1:]]
try:
    main()
finally:
    print(*(name for name in SLOW if name in sys.modules), sep=",", file=sys.stderr)
"""


def test_a_formula_ranks_without_slow_libraries(tmp_path):
    slow = "lightgbm sklearn scipy.stats pandas polars optuna matplotlib networkx".split()
    code = f"SLOW = {slow}{RANKING}"
    arguments = [str(LAYOUT), "-c", "layout:cpu:random", "--workspace", str(tmp_path)]
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    assert "agreement with the labels" in done.stdout, done.stderr
    assert done.stderr.strip() == ""


TILES_OF_CPUS = {"collection": "tile:cpu"}


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """A workspace with rows and a model of the sample's tiles of CPUs."""
    folder = tmp_path_factory.mktemp("work")
    xlarank.build_features(SAMPLE, folder, jobs=1, **TILES_OF_CPUS)
    xlarank.train(folder, seeds=1, rounds=20, threads=1)
    return folder


def test_results_are_tables_that_notebooks_show(work):
    kernel = SAMPLE / "npz/tile/cpu/valid/bmm_tb__a.npz"
    trained = xlarank.train(work, seeds=1, rounds=10, threads=1, **TILES_OF_CPUS)
    board = trained.to_polars()
    assert {"lambdarank", "estimated time", "rule: file order"} <= {*board["ranker"]}
    assert board["graphs"].unique().to_list() == [30] and board["difference"][0] is None
    evaluated = xlarank.evaluate(work, **TILES_OF_CPUS)
    assert evaluated.to_polars().columns == board.columns
    ranker = evaluated.to_polars()["ranker"][0]
    assert repr(evaluated).startswith(f"tile:cpu, valid: {ranker} 0.")
    submission = xlarank.submit(work / "s.csv", work, **TILES_OF_CPUS)
    assert submission.to_polars().rows()[0][:2] == ("tile:cpu", 15)
    built = xlarank.build_features(SAMPLE, work, jobs=1, **TILES_OF_CPUS)
    assert built.to_polars()["kept"].sum() == 57
    assert repr(built).startswith("<BuildReport: 57 graphs, ")
    ranking = xlarank.rank(kernel, work)
    explanation = xlarank.explain(kernel, work, config=3, against=5)
    assert explanation.to_polars().equals(ranking.explain(3, 5).to_polars())
    for result in (trained, evaluated, submission, built, ranking, explanation):
        html = result._repr_html_()
        assert "<table" in html and repr(result).splitlines()[0][:20].strip("<") in html
        assert len(result.to_pandas()) == len(result.to_polars()) > 0


def test_a_fitted_ranker_ranks_and_is_evaluated_and_submitted(work):
    rows = xlarank.load_rows(work, "tile:cpu")
    ranker = xlarank.GraphRanker("ranknet", n_estimators=5, n_jobs=1)
    kernel = min((SAMPLE / "npz/tile/cpu/test").glob("*.npz"))
    with pytest.raises(ModelError, match="was not fitted; call fit first"):
        xlarank.rank(kernel, work, model_from=ranker)
    ranker.fit(rows.filter(pl.col("split") == "train"))
    ranking = xlarank.rank(kernel, work, model_from=ranker)
    assert ranking.scores.tolist() == ranker.predict(kernel).tolist()
    assert ranking.reason == "ranknet, fitted on tile:cpu"
    assert xlarank.explain(kernel, work, model_from=ranker).model == "ranknet"
    board = xlarank.evaluate(work, model_from=ranker).to_polars()
    assert "ranknet of tile:cpu" in [*board["ranker"]]
    submission = xlarank.submit(work / "own.csv", work, model_from=ranker, **TILES_OF_CPUS)
    assert submission.ranked_by["tile:cpu"].startswith("ranknet, ")
    with pytest.raises(ModelError, match="the model of tile:cpu ranks tile graphs"):
        xlarank.rank(LAYOUT, work, model_from=ranker)


class Nearest:
    """Estimator that remembers rows; higher relevance is faster."""

    def fit(self, X, y, group):
        self.seen = (X, y, list(group))
        return self

    def predict(self, X):
        rows, relevance, _ = self.seen
        return relevance[[np.abs(rows - row).sum(axis=1).argmin() for row in X]]


def test_any_estimator_is_cross_validated_and_ranks(work, tmp_path):
    """Labels are whole numbers from 0 to 30 by rank, and only known libraries are saved."""
    own = Nearest()
    ranker = xlarank.GraphRanker(estimator=own)
    rows = xlarank.load_rows(work, "tile:cpu")
    result = xlarank.cross_validate(rows, ranker)
    assert len(result.scores) == 30 and 0.5 < result.mean < 1
    assert repr(result).startswith("<OutOfFold of tile:cpu by Nearest: 0.")
    ranker.fit(rows.filter(pl.col("split") == "train"))
    assert not vars(own), "a copy was fitted"
    fitted = ranker.model_.members[0].booster.estimator
    values, relevance, groups = fitted.seen
    assert values.dtype == np.float32 and len(relevance) == sum(groups) == 1920
    assert relevance.dtype.kind == "i" and {*relevance} == {*range(31)}
    first = rows.filter(pl.col("split") == "train").head(groups[0])
    assert relevance[first["label"].arg_min()] == 30
    assert relevance[first["label"].arg_max()] == 0
    kernel = SAMPLE / "npz/tile/cpu/train/bmm__a.npz"
    ranking = xlarank.rank(kernel, work, model_from=ranker)
    assert ranking.ranked_by == "Nearest" and ranking.metrics["tau"] > 0.9
    with pytest.raises(ModelError, match="Nearest cannot be saved; expected LGBMRanker or XGB"):
        ranker.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()
    with pytest.raises(ModelError, match="Nearest has no contributions by column"):
        xlarank.explain(kernel, work, model_from=ranker)
    for options in ({"estimator": 3}, {"estimator": Nearest}, {"estimator": own, "num_leaves": 3}):
        with pytest.raises(ParameterError, match="estimator"):
            xlarank.GraphRanker(**options)


@pytest.mark.parametrize(
    ("library", "name", "verbosity", "text"),
    [("lightgbm", "LGBMRanker", -1, "booster.txt"), ("xgboost", "XGBRanker", 0, "booster.json")],
)
def test_estimators_of_known_libraries_are_saved_as_text(
    work, tmp_path, library, name, verbosity, text
):
    pytest.importorskip("sklearn")
    options = {"n_estimators": 20, "random_state": 1, "n_jobs": 1, "verbosity": verbosity}
    estimator = getattr(pytest.importorskip(library), name)(**options)
    ranker = xlarank.GraphRanker(estimator=estimator)
    rows = xlarank.load_rows(work, "tile:cpu")
    assert xlarank.cross_validate(rows, ranker).mean > 0.8
    ranker.fit(rows.filter(pl.col("split") == "train"))
    kernel = SAMPLE / "npz/tile/cpu/valid/bmm_tb__a.npz"
    graph = xlarank.read_graph(kernel)
    ranker.save(tmp_path / "model")
    names = {path.name for path in (tmp_path / "model").rglob("*") if path.is_file()}
    assert names == {"model.json", "member.json", text}
    loaded = xlarank.GraphRanker.load(tmp_path / "model")
    assert loaded.predict(graph).tolist() == ranker.predict(graph).tolist()
    ranking = xlarank.rank(kernel, work, model_from=tmp_path / "model")
    assert ranking.ranked_by == name and ranking.scores.tolist() == loaded.predict(graph).tolist()
    assert sum(loaded.model_.importance().values()) == pytest.approx(1)
    explanation = xlarank.explain(kernel, work, model_from=tmp_path / "model")
    assert sum(explanation.columns.values()) == pytest.approx(explanation.difference, abs=1e-4)
    with pytest.raises(ModelError, match=f"{name} can be loaded, but not fitted"):
        loaded.fit(rows.filter(pl.col("split") == "train"))


def test_of_a_large_graph_an_estimator_gets_a_sample(tmp_path):
    arrays = dict(np.load(TILES / "bmm__a.npz"))
    picks = np.arange(12_000) % len(arrays["config_runtime"])
    for name in ("config_feat", "config_runtime", "config_runtime_normalizers"):
        arrays[name] = arrays[name][picks]
    arrays["config_feat"][:, 0] = np.arange(12_000)
    path = save_npz(tmp_path / "large__a.npz", arrays)
    kernels = [path, TILES / "bmm__b.npz"]
    ranker = xlarank.GraphRanker(estimator=Nearest(), target="cpu").fit(kernels)
    _, relevance, groups = ranker.model_.members[0].booster.estimator.seen
    assert groups == [10_000, 64] and {*relevance[:10_000]} == {*range(31)}


def test_progress_is_printed_on_request(tmp_path, capsys):
    xlarank.show_progress()
    try:
        xlarank.build_features(SAMPLE, tmp_path, split="test", jobs=1, **TILES_OF_CPUS)
    finally:
        xlarank.show_progress(False)
    assert capsys.readouterr().out.endswith("building features: 15 of 15\n")
