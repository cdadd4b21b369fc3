"""Results: rows that are read when they are asked for."""

from __future__ import annotations

import importlib

from ._ebbtide import Rows

# What `typing` brings is not worth the time that importing it takes.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    import pandas as _pandas
    import polars as _polars
    import pyarrow as _pyarrow

    _T = TypeVar("_T")

# What a notebook shows, and of how many rows it draws a chart.
_SHOWN = 20
_CHARTED = 100_000


def _package(name: str, purpose: str) -> Any:
    """Imports a package that only some calls need."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"{purpose} needs the package {name}: pip install {name}", name=name) from error


class Chart:
    """A chart, which a notebook shows."""

    svg: str
    """The picture, as SVG."""

    def __init__(self, svg: str) -> None:
        self.svg = svg

    def _repr_svg_(self) -> str:
        return self.svg


class Result:
    """The rows of a statement.

    A query was checked when this was made, and is run by whatever reads its rows: the first reader sees the database as it
    was when this was made, each later one runs the query again and sees it as it is then. Anything that takes an object
    with `__arrow_c_stream__` reads it directly, batch by batch.

    Other statements were run to their end when this was made; their rows, if they have any, can be read many times.
    """

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    @property
    def columns(self) -> list[str]:
        """Names of the columns; none if the statement returns no rows."""
        return self._rows.columns

    @property
    def message(self) -> str | None:
        """What a statement did that returns no rows, for people."""
        return self._rows.message

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The rows as Arrow's C stream. Numbers are not copied."""
        return self._rows.__arrow_c_stream__(requested_schema)

    def arrow(self) -> _pyarrow.Table:
        """All rows as a pyarrow Table."""
        pyarrow = _package("pyarrow", "Result.arrow")
        return self._read(lambda rows: pyarrow.RecordBatchReader.from_stream(rows).read_all())

    def pl(self) -> _polars.DataFrame:
        """All rows as a Polars DataFrame."""
        polars = _package("polars", "Result.pl")
        frame: _polars.DataFrame = self._read(polars.DataFrame)
        return frame

    def df(self) -> _pandas.DataFrame:
        """All rows as a pandas DataFrame, made by pyarrow."""
        _package("pandas", "Result.df")
        pyarrow = _package("pyarrow", "Result.df")
        return self._read(lambda rows: pyarrow.RecordBatchReader.from_stream(rows).read_all().to_pandas())

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows as tuples.

        Times are datetimes in UTC, rounded down to microseconds; objects are dicts, decimals `decimal.Decimal`.
        """
        return self._rows.tuples()

    def chart(self, title: str = "") -> Chart:
        """A chart of all rows: lines over a time or a number, bars over names."""
        return Chart(self._rows.chart(title))

    def __repr__(self) -> str:
        return f"<ebbtide.Result: {', '.join(self.columns) or self.message or 'no rows'}>"

    def _repr_html_(self) -> str:
        """A table of the first rows, and a chart if there are times and numbers."""
        from html import escape

        if not self.columns:
            return f"<p>{escape(self.message or 'done')}</p>"
        rows, numeric, more, svg = self._rows.preview(_SHOWN, _CHARTED)
        html = ["<table><thead><tr>"]
        html += [f"<th>{escape(name)}</th>" for name in self.columns]
        html.append("</tr></thead><tbody>")
        for row in rows:
            cells = zip(row, numeric, strict=True)
            html.append("<tr>" + "".join(_cell(text, is_number) for text, is_number in cells) + "</tr>")
        html.append("</tbody></table>")
        if more:
            html.append(f"<p>the first {len(rows)} rows</p>")
        if svg is not None:
            html.append(svg)
        return "".join(html)

    def _read(self, read: Callable[[Rows], _T]) -> _T:
        """Lets another package read the rows; of its errors those that began here are raised as ours."""
        try:
            return read(self._rows)
        except BaseException:
            ours = self._rows.take_failure()
            if ours is not None:
                raise ours from None
            raise


def _cell(text: str | None, is_number: bool) -> str:
    from html import escape

    style = ' style="text-align: right"' if is_number else ""
    return f"<td{style}>{'<i>NULL</i>' if text is None else escape(text)}</td>"
