"""The report before this one: its numbers stand in its HTML, so each `--out` is a series of its own.

Kept beside the tables they would be one series for all who make reports, and whoever only reads could make none.
"""

import json
import re
from datetime import datetime

from pulsar_ingress_pipeline.report.records import Numbers

_BLOCK = re.compile(r'<script type="application/json" id="numbers">(.*?)</script>', re.DOTALL)
_TIMES, _COUNTS = ("made", "until"), ("lookups", "hits", "unmapped", "changes", "quarantined")


def kept(numbers: Numbers) -> dict[str, str | int]:
    """What the page keeps for the next report, in a block that no browser runs."""
    values: dict[str, str | int] = {"tables": numbers.tables}
    values |= {name: getattr(numbers, name).isoformat() for name in _TIMES}
    return values | {name: getattr(numbers, name) for name in _COUNTS}


def read(html: str) -> Numbers | None:
    """The numbers of a report; None where this is none, or one that had nothing to count."""
    found = _BLOCK.search(html)
    if found is None:
        return None
    try:
        values = json.loads(found[1])
        made, until = (datetime.fromisoformat(values[name]) for name in _TIMES)
        counts = [int(values[name]) for name in _COUNTS]
        tables = str(values["tables"])
    except (ValueError, KeyError, TypeError):
        return None
    if made.tzinfo is None or until.tzinfo is None:
        return None
    return Numbers(tables, made, until, *counts)


def comparable(then: Numbers | None, now: Numbers | None) -> str | None:
    """Why two reports cannot be compared; None where they can."""
    if then is None or now is None:
        return "There is no report to compare with: the next one in this place will tell what has changed."
    if then.tables != now.tables:
        return f"The report before this one was of other tables: {then.tables}."
    if any(getattr(then, name) > getattr(now, name) for name in _COUNTS):
        return (
            "The tables hold less than when the report before this one was made: they were made anew, or hours of them."
        )
    return None
