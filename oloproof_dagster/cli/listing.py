"""Rows and texts on a terminal of any width: no word is broken, and no line of a text begins where our own lines do."""

from collections.abc import Iterator

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from oloproof_dagster.as_data import on_a_terminal

GAP = 2
LEAST = 12
"""How narrow a column may become that is folded at its blanks."""


def plain(text: str) -> Text:
    """A text of an agent, a user or a file, as data."""
    return Text(on_a_terminal(text))


def longest_word(text: Text) -> int:
    """How wide the widest word of a text is."""
    return max((cell_len(word) for word in text.plain.split()), default=0)


class Hanging:
    """A text that is folded at its blanks, all lines but the first one indented."""

    def __init__(self, text: Text, indent: int = 2 * GAP) -> None:
        self._text, self._indent = text, indent

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The lines."""
        lines = self._text.wrap(console, options.max_width, overflow="fold") or [Text()]
        yield lines[0]
        rest = self._text[len(lines[0]) :] if len(lines) > 1 else Text()
        rest = rest[len(rest.plain) - len(rest.plain.lstrip()) :]
        for line in rest.wrap(console, max(1, options.max_width - self._indent), overflow="fold") if rest else ():
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
        widths = self._widths(options.max_width)
        if widths is not None:
            yield self._table(widths)
        else:
            yield from self._folded()

    def _widths(self, available: int) -> list[int] | None:
        """A width for each column in which no word is broken; None where that takes more than is available.

        The first column is never folded: its lines would begin where our own do.
        """
        columns = list(zip(map(Text, self._headings), *self._rows, strict=True))
        widths = [max(cell.cell_len for cell in column) for column in columns]
        least = [max(longest_word(cell) for cell in column) for column in columns]
        if self._last_folds:
            least[-1] = 0
        least = [max(word, min(width, LEAST)) for word, width in zip(least, widths, strict=True)]
        least[0] = widths[0]
        available -= GAP * (len(widths) - 1)
        if sum(least) > available:
            return None
        while sum(widths) > available:
            widest = max(range(len(widths)), key=lambda column: widths[column] - least[column] and widths[column])
            widths[widest] -= 1
        return widths

    def _table(self, widths: list[int]) -> Table:
        made = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="dim")
        for heading, width in zip(self._headings, widths, strict=True):
            made.add_column(heading, width=width, overflow="fold")
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
