"""Rows and texts on a terminal of any width: no word is broken, and no line of a text begins where our own lines do."""

from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from oloproof_dagster.as_data import on_a_terminal

GAP = 2
LEAST_LAST = 24
"""How narrow the last column may become, which is the one that folds."""


def plain(text: str) -> Text:
    """A text of an agent, a user or a file, as data."""
    return Text(on_a_terminal(text))


class Hanging:
    """A text that is folded at its blanks, all lines but the first one indented."""

    def __init__(self, text: Text, indent: int = 2 * GAP) -> None:
        self._text, self._indent = text, indent

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The lines."""
        first, *others = self._text.wrap(console, max(1, options.max_width - self._indent), overflow="fold") or [Text()]
        yield first
        for line in others:
            yield Text.assemble(" " * self._indent, line)


class Listing:
    """Rows under headings; where they do not fit, each row is folded into lines that name its columns.

    With `last_folds` a word of the last column may be broken: it holds JSON, which has no blanks to fold at.
    """

    def __init__(self, *headings: str, last_folds: bool = False) -> None:
        self._headings, self._last_folds = headings, last_folds
        self._rows: list[tuple[Text, ...]] = []

    def add_row(self, *cells: str | Text) -> None:
        """Takes a row; a cell that is no Text is data."""
        self._rows.append(tuple(cell if isinstance(cell, Text) else plain(cell) for cell in cells))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """A table, or lines."""
        if self._fits(options.max_width):
            yield self._table()
        else:
            yield from self._folded()

    def _fits(self, width: int) -> bool:
        *others, last = (
            max(len(heading), *(row[column].cell_len for row in self._rows), 0)
            for column, heading in enumerate(self._headings)
        )
        left = width - sum(others) - GAP * len(others)
        if last <= left:
            return True
        words = (len(word) for row in self._rows for word in row[-1].plain.split())
        return left >= LEAST_LAST and (self._last_folds or max(words, default=0) <= left)

    def _table(self) -> Table:
        made = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="dim")
        for heading in self._headings[:-1]:
            made.add_column(heading, no_wrap=True)
        made.add_column(self._headings[-1], overflow="fold")
        for row in self._rows:
            made.add_row(*row)
        return made

    def _folded(self) -> Iterator[Hanging]:
        """The first cell of a row on a line of its own, the others below, each behind its heading."""
        for first, *others in self._rows:
            yield Hanging(first)
            named = zip(self._headings[1:], others, strict=True)
            parts = [Text.assemble((f"{heading} " if heading else "", "dim"), cell) for heading, cell in named if cell]
            line = Text("  ")
            for number, part in enumerate(parts):
                line.append("   " if number else "").append_text(part)
            if parts:
                yield Hanging(line)
