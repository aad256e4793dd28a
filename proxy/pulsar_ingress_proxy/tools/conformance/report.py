"""What `conformance` prints and writes: a table, JSON, and JUnit's XML. Pure."""

from collections.abc import Iterator, Sequence
from typing import Any
from xml.etree import ElementTree

from pulsar_ingress_proxy.tools.conformance.checks import Result, holds
from pulsar_ingress_proxy.tools.conformance.verdicts import HELP, State, Verdict
from pulsar_ingress_proxy.tools.terminal import Palette, aligned

_WORDS: dict[State, str] = {"held": "ok", "failed": "FAIL", "skipped": "skip"}


def as_lines(results: Sequence[Result], palette: Palette) -> Iterator[str]:
    """One line for each check, in columns, and a summary."""
    paints = {"held": palette.good, "failed": palette.bad, "skipped": palette.dim}
    rows = [(str(one.ingress.url), one.ingress.listener, one.check, _text(one.verdict)) for one in results]
    for result, row in zip(results, aligned(rows), strict=True):
        state = result.verdict.state
        yield f"{paints[state](f'{_WORDS[state]:<4}')}  {row}"
    summary = f"{_count(results, 'held')} of {len(results)} checks held"
    if failures := _count(results, "failed"):
        summary += f", {failures} failed"
    if skipped := _count(results, "skipped"):
        summary += f", {skipped} not tried"
    yield (palette.bad if failures else palette.good)(summary)


def _text(verdict: Verdict) -> str:
    return f"{verdict.cause}: {verdict.text} (see {HELP[verdict.cause]})" if verdict.cause else verdict.text


def as_json(results: Sequence[Result]) -> dict[str, Any]:
    return {
        "held": holds(results),
        "checks": [
            {
                "url": str(one.ingress.url),
                "ingress": one.ingress.name,
                "listener": one.ingress.listener,
                "check": one.check,
                "result": one.verdict.state,
                "text": one.verdict.text,
                "cause": one.verdict.cause,
                "help": HELP[one.verdict.cause] if one.verdict.cause else None,
                "seconds": round(one.seconds, 3),
            }
            for one in results
        ],
    }


def as_junit(results: Sequence[Result]) -> bytes:
    """A suite for each URL, and a case for each check."""
    root = ElementTree.Element("testsuites", _totals(results), name="pulsar-ingress-proxy conformance")
    for url in dict.fromkeys(str(one.ingress.url) for one in results):
        own = [one for one in results if str(one.ingress.url) == url]
        suite = ElementTree.SubElement(root, "testsuite", _totals(own), name=url)
        for one in own:
            verdict = one.verdict
            case = ElementTree.SubElement(suite, "testcase", classname=url, name=one.check, time=f"{one.seconds:.3f}")
            if verdict.cause is not None:
                failure = ElementTree.SubElement(case, "failure", message=verdict.text, type=verdict.cause)
                failure.text = _text(verdict)
            elif verdict.state == "skipped":
                ElementTree.SubElement(case, "skipped", message=verdict.text)
            else:
                ElementTree.SubElement(case, "system-out").text = verdict.text
    ElementTree.indent(root)
    return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _totals(results: Sequence[Result]) -> dict[str, str]:
    return {
        "tests": str(len(results)),
        "failures": str(_count(results, "failed")),
        "errors": "0",
        "skipped": str(_count(results, "skipped")),
        "time": f"{sum(one.seconds for one in results):.3f}",
    }


def _count(results: Sequence[Result], state: State) -> int:
    return sum(one.verdict.state == state for one in results)
