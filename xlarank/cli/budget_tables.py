"""Plans and outcomes of `run-all` as rows of text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # heavy; the caller has them
    from xlarank.pipelines.budgeting.plan import Plan
    from xlarank.pipelines.run_all import CollectionOutcome

#: Heads of `plan_rows`; > marks numbers.
PLAN_HEADS: Final = (
    "collection", ">configurations kept", ">rows", ">rounds", ">trials", ">seeds", ">build min", ">first min",
    ">tune min", ">final min", ">GB memory", ">GB disk",
)  # fmt: skip
#: Heads of `outcome_row`.
OUTCOME_HEADS: Final = ("collection", "ranked by", ">valid, first model", ">trials", ">out of fold", ">s")


def plan_rows(plan: Plan) -> list[tuple[str, ...]]:
    """A row for each collection; without a model for it nothing but its name."""
    return [
        (
            str(p.collection), f"{p.max_configs:,}", f"{p.rows:,}", str(p.rounds), str(p.trials), str(p.seeds),
            f"{p.build_seconds / 60:.1f}", f"{(p.first_seconds + p.rank_seconds) / 60:.1f}",
            f"{p.tune_seconds / 60:.1f}", f"{p.second_pass / 60:.1f}", f"{p.memory_gb:.1f}", f"{p.disk_gb:.2f}",
        )
        if p.trained
        else (str(p.collection), *["-"] * (len(PLAN_HEADS) - 1))
        for p in plan.collections
    ]  # fmt: skip


def outcome_row(outcome: CollectionOutcome) -> tuple[str, ...]:
    """What became of a collection; scores as mean ± standard deviation over graphs."""
    valid, folds = (
        f"{found['score']['mean']:.3f} ± {found['score']['std']:.3f}" if found else "-"
        for found in (outcome.valid, outcome.folds)
    )
    trials = str(outcome.tuned.trials) if outcome.tuned is not None else "-"
    return outcome.collection, outcome.ranked_by, valid, trials, folds, f"{outcome.seconds:.0f}"
