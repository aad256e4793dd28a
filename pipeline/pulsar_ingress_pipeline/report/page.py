"""The whole page: one file that needs nothing else, runs nothing and asks for nothing."""

from base64 import b64encode
from hashlib import sha256
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from pulsar_ingress_pipeline.report import formats, previous, sections
from pulsar_ingress_pipeline.report.advice import advise
from pulsar_ingress_pipeline.report.aggregation import ERROR
from pulsar_ingress_pipeline.report.records import Numbers, Report
from pulsar_ingress_pipeline.report.scales import WINDOW
from pulsar_ingress_proxy import __version__
from pulsar_ingress_proxy.observability import objectives

_STYLE = (Path(__file__).parent / "style.css").read_text()
# Nothing is loaded and nothing runs, whatever a name in the page may be.
_POLICY = (
    f"default-src 'none'; style-src 'sha256-{b64encode(sha256(_STYLE.encode()).digest()).decode()}'; "
    "base-uri 'none'; form-action 'none'"
)


def page(report: Report, then: Numbers | None) -> str:
    """`then` is what the report before this one had counted."""
    why = previous.comparable(then, report.numbers)
    known = None if why is not None else then
    template = environment().get_template("page.html")
    return template.render(report=report, now=report.numbers, then=known, incomparable=why, since=_since(report, known))


def environment() -> Environment:
    """Templates in which whatever is not markup is text."""
    made = Environment(
        loader=PackageLoader("pulsar_ingress_pipeline.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
        finalize=lambda value: formats.clean(value) if isinstance(value, str) else value,
    )
    for name in ("clip", "clock", "compact", "duration", "percent", "shown", "thousands", "topic"):
        made.filters[name] = getattr(formats, name)
    made.filters["in_words"] = formats.length
    made.globals |= {
        "style": _STYLE, "policy": _POLICY, "version": __version__, "sections": sections, "advise": advise,
        "kept": previous.kept, "objective": objectives, "error": ERROR,
    }  # fmt: skip
    return made


def _since(report: Report, then: Numbers | None) -> float | None:
    """The column in which the report before this one ended, if it is shown."""
    if then is None or report.bins is None:
        return None
    place = (then.until + WINDOW - report.bins.start) / report.bins.step
    return place if 0 < place < report.bins.count else None
