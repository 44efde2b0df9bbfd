"""Results as tables, for notebooks."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # imported when a table is requested
    import pandas as pd
    import polars as pl

#: Maximum number of rows that a notebook shows.
_SHOWN = 20


class Table:
    """Result that notebooks show as a description and a table."""

    def to_polars(self) -> pl.DataFrame:
        """Return the result as a frame."""
        raise NotImplementedError

    def to_pandas(self) -> pd.DataFrame:
        """Return `to_polars` as a pandas frame."""
        return self.to_polars().to_pandas()

    def _repr_html_(self) -> str:
        import polars as pl

        description = escape(repr(self), quote=False).replace("\n", "<br>")
        with pl.Config(
            tbl_rows=_SHOWN,
            tbl_cols=-1,
            float_precision=4,
            tbl_hide_dataframe_shape=True,
            tbl_hide_column_data_types=True,
        ):
            return f"<p>{description}</p>{self.to_polars()._repr_html_()}"
