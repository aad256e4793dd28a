"""Renders the page: a single HTML file without scripts that loads nothing.

Its numbers are in the HTML for the next report to compare with, so each `--out` is a series of its own. Next to the
tables they would be one series for everyone, and a report would need write access to the tables.
"""

import json
import re
from base64 import b64encode
from dataclasses import asdict
from datetime import datetime
from hashlib import sha256
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from pulsar_ingress_pipeline.report import formats, sections
from pulsar_ingress_pipeline.report.advice import advise
from pulsar_ingress_pipeline.report.queries import ERROR
from pulsar_ingress_pipeline.report.records import WINDOW, Numbers, Report
from pulsar_ingress_proxy import __version__
from pulsar_ingress_proxy.observability import objectives

_STYLE = (Path(__file__).parent / "style.css").read_text()
# Nothing is loaded and no script runs, whatever names the page contains.
_POLICY = (
    f"default-src 'none'; style-src 'sha256-{b64encode(sha256(_STYLE.encode()).digest()).decode()}'; "
    "base-uri 'none'; form-action 'none'"
)
_NUMBERS = re.compile(r'<script type="application/json" id="numbers">(.*?)</script>', re.DOTALL)
_COUNTS = ("lookups", "hits", "unmapped", "changes", "quarantined")


def page(report: Report, then: Numbers | None) -> str:
    """`then` has the numbers of the previous report."""
    why = incomparable(then, report.numbers)
    known = None if why is not None else then
    template = environment().get_template("page.html")
    return template.render(report=report, now=report.numbers, then=known, incomparable=why, since=_since(report, known))


def environment() -> Environment:
    """Templates that escape everything that is not markup."""
    made = Environment(
        loader=PackageLoader("pulsar_ingress_pipeline.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
        finalize=lambda value: formats.clean(value) if isinstance(value, str) else value,
    )
    made.policies["json.dumps_kwargs"] = {"default": datetime.isoformat}
    for name in ("clip", "clock", "compact", "duration", "percent", "shown", "thousands", "topic"):
        made.filters[name] = getattr(formats, name)
    made.filters |= {"in_words": formats.length, "as_dict": asdict}
    made.globals |= {
        "style": _STYLE, "policy": _POLICY, "version": __version__, "sections": sections, "advise": advise,
        "objective": objectives, "error": ERROR,
    }  # fmt: skip
    return made


def read(html: str) -> Numbers | None:
    """The numbers of a report; None if this is not a report, or one without lookups."""
    found = _NUMBERS.search(html)
    try:
        values = json.loads(found[1]) if found is not None else {}
        made, until = (datetime.fromisoformat(values[name]) for name in ("made", "until"))
        numbers = Numbers(str(values["tables"]), made, until, *(int(values[name]) for name in _COUNTS))
    except (ValueError, KeyError, TypeError):
        return None
    return None if made.tzinfo is None or until.tzinfo is None else numbers


def incomparable(then: Numbers | None, now: Numbers | None) -> str | None:
    """Why two reports cannot be compared; None if they can."""
    if then is None or now is None:
        return "There is no earlier report to compare with. The next report written here will show what has changed."
    if then.tables != now.tables:
        return f"The previous report was made from other tables: {then.tables}."
    if any(getattr(then, name) > getattr(now, name) for name in _COUNTS):
        return "The tables contain less than in the previous report: all or some hours were made again."
    return None


def _since(report: Report, then: Numbers | None) -> float | None:
    """The column in which the previous report ended, if it is shown."""
    if then is None or report.bins is None:
        return None
    place = (then.until + WINDOW - report.bins.start) / report.bins.step
    return place if 0 < place < report.bins.count else None
