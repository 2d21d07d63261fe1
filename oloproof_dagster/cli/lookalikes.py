"""Two texts that differ and look alike, shown so that the difference is seen."""

import unicodedata

BEFORE, AFTER = 20, 40
"""How many characters stand before and after the first difference."""


def apart(expected: str, actual: str, shown: tuple[str, str]) -> tuple[str, str] | None:
    """Both texts from shortly before their first difference, other than ASCII characters as code points; None where
    what is `shown` of them can be told apart as it is."""
    if _skeleton(shown[0]) != _skeleton(shown[1]):
        return None
    pairs = enumerate(zip(expected, actual, strict=False))
    first = next((at for at, (e, a) in pairs if e != a), min(len(expected), len(actual)))
    if first == len(expected) == len(actual):  # both were cut before they differ
        same = f"(the first {first:,} characters are alike)"
        return same, same
    start = max(0, first - BEFORE)
    return _from(expected, start, first), _from(actual, start, first)


def _skeleton(text: str) -> str:
    """What people see of a text: compatible forms alike, nothing invisible."""
    return "".join(
        each for each in unicodedata.normalize("NFKC", text) if unicodedata.category(each) not in ("Cf", "Mn")
    )


def _from(text: str, start: int, first: int) -> str:
    part = text[start : first + AFTER].encode("ascii", "backslashreplace").decode()
    return ("..." if start else "") + part + ("..." if first + AFTER < len(text) else "")
