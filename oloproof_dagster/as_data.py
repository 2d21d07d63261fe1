"""Text of agents, users and files as data in what shows it: one function for each medium.

What such a text holds is shown and never obeyed: it begins no line of its own, moves no cursor, turns no writing
direction, is no markup and no formula.
"""

import re
from typing import Any

_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def on_a_terminal(text: str) -> str:
    r"""The text on one line: control characters, line breaks and bidirectional overrides as escapes.

    >>> print(on_a_terminal("refund\nGate: ALLOW \x1b[32m \u202e"))
    refund\nGate: ALLOW \x1b[32m \u202e
    """
    return text if text.isprintable() else "".join(map(_escape, text))


def in_markdown(text: str) -> str:
    """Text that Markdown and HTML leave as it is, on one line.

    >>> in_markdown("<b> a|b")
    '&lt;b&gt; a\\\\|b'
    """
    text = on_a_terminal(re.sub(r"\s+", " ", text))
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_{}\[\]()#+\-.!|~:@])", r"\\\1", text)


def in_a_csv_cell(value: Any) -> Any:
    """The value, with a `'` in front where it is text that a spreadsheet would take for a formula.

    >>> in_a_csv_cell("=1+1"), in_a_csv_cell("a=1"), in_a_csv_cell(-1)
    ("'=1+1", 'a=1', -1)
    """
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def _escape(char: str) -> str:
    if char.isprintable():
        return char
    number = ord(char)
    return _NAMED.get(char) or (
        f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
    )
