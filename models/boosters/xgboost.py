"""XGBoost: quantisation, training and the trained trees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import numpy as np

from xlarank.models.arrays import Floats, Indices, Matrix
from xlarank.models.boosters.lightgbm import LIGHTGBM
from xlarank.models.params import MAX_DEPTH, Interval, ParamSpec, Specs
from xlarank.models.training_data import Dataset, FitSettings

#: Parameters of trees, with XGBoost's names.
XGBOOST: Final[Specs] = {
    "learning_rate": replace(LIGHTGBM["learning_rate"], tile=None),
    "max_leaves": LIGHTGBM["num_leaves"],
    "min_child_weight": ParamSpec(
        5.0, Interval(0), Interval(0.1, 30.0, log=True), "minimum sum of hessians per leaf"
    ),
    "colsample_bytree": LIGHTGBM["feature_fraction"],
    "subsample": LIGHTGBM["bagging_fraction"],
    "reg_lambda": LIGHTGBM["lambda_l2"],
}
_MAX_BIN: Final = 64


@dataclass(frozen=True, eq=False)
class XGBoostBooster:
    """An ``xgboost.Booster`` with the interface of `LightGBMBooster`."""

    trees: Any

    file_name = "booster.json"

    @staticmethod
    def tree_params(params: Mapping[str, Any], settings: FitSettings) -> dict[str, Any]:
        """Return the parameters of training by XGBoost's names."""
        return {
            **{name: params[name] for name in XGBOOST},
            "base_score": 0.0,
            "tree_method": "hist",
            "grow_policy": "lossguide",
            "max_depth": MAX_DEPTH,
            "seed": settings.seed,
            "nthread": settings.threads,
            "verbosity": 0,
        }

    @classmethod
    def fit(cls, dataset: Dataset, used: Indices, settings: FitSettings) -> Self:
        import xgboost as xgb

        data = dataset.data
        train = xgb.QuantileDMatrix(
            data.matrix(used),
            dataset.label,
            weight=dataset.weight,
            base_margin=dataset.init_score,
            group=np.diff(data.indptr),
            max_bin=_MAX_BIN,
            nthread=settings.threads,
        )
        with xgb.config_context(verbosity=0):
            return cls(xgb.train({**dataset.params, "max_bin": _MAX_BIN}, train, settings.rounds))

    @property
    def rounds(self) -> int:
        return int(self.trees.num_boosted_rounds())

    def relevance(self, values: Matrix, rounds: int = 0) -> Floats:
        total = self.trees.inplace_predict(
            values, iteration_range=(0, rounds), predict_type="margin"
        )
        return np.asarray(total, np.float64)

    def stages(
        self, values: Matrix, scores: Floats, every: int, *, from_zero: bool
    ) -> Iterator[Floats]:
        for stop in [*range(every, self.rounds, every), self.rounds]:
            yield scores - self.relevance(values, stop)

    def contributions(self, values: Matrix) -> Floats:
        import xgboost as xgb

        return np.asarray(self.trees.predict(xgb.DMatrix(values), pred_contribs=True), np.float64)

    def gains(self) -> Floats:
        # XGBoost names unnamed columns f0, f1, ... and omits those without a split.
        gains = self.trees.get_score(importance_type="total_gain")
        return np.array(
            [np.sum(gains.get(f"f{column}", 0.0)) for column in range(self.trees.num_features())]
        )

    def text(self) -> str:
        """Return the trees as JSON for `read`; equal trees give equal texts."""
        return str(self.trees.save_raw("json").decode("utf-8"))

    @classmethod
    def read(cls, text: str, features: int) -> Self:
        """Read trees on ``features`` columns; raises `ValueError`."""
        import xgboost as xgb

        try:
            with xgb.config_context(verbosity=0):
                trees = xgb.Booster(model_file=bytearray(text.encode("utf-8")))
        except xgb.core.XGBoostError as error:
            raise ValueError(str(error).split("\n", 1)[0]) from error
        if trees.num_features() != features:
            raise ValueError(f"its trees are on {trees.num_features()} columns, not {features}")
        return cls(trees)
