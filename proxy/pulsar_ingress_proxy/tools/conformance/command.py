"""The options of `conformance`, and the command itself: it reads its files, runs the checks, and prints."""

import argparse
import asyncio
import json
import re
import sys
from contextlib import ExitStack
from itertools import count
from pathlib import Path

from pulsar_ingress_proxy.routing.snapshot import Snapshot
from pulsar_ingress_proxy.tools.conformance.checks import Client, Result, conform, holds
from pulsar_ingress_proxy.tools.conformance.expectations import TOPIC, expect
from pulsar_ingress_proxy.tools.conformance.producing import missing_package
from pulsar_ingress_proxy.tools.conformance.report import as_json, as_junit, as_lines
from pulsar_ingress_proxy.tools.preflight import CannotStart
from pulsar_ingress_proxy.tools.reach import ClientTls
from pulsar_ingress_proxy.tools.terminal import Palette, Progress

SUMMARY = "look topics up through each ingress, as a client does"
DETAILS = (
    "Checks that every redirect and address is on the listener that the config says, and can be reached from here. "
    "Exits 1 if a check fails. 401 and 403 count as reached, unless credentials are given."
)
_NOT_HELD = 1
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--url",
        dest="urls",
        action="extend",
        nargs="+",
        required=True,
        metavar="URL",
        help="a service URL of clients: https://pulsar.example.com or pulsar+ssl://pulsar.example.com:6651",
    )
    parser.add_argument(
        "--topic", default=TOPIC, metavar="TOPIC", help=f"the topic to look up, which does not create it ({TOPIC})"
    )
    produce = "produce and consume a message, which may create the topic (needs the extra `conformance`)"
    parser.add_argument("--produce", action="store_true", help=produce)
    sent = "the token to authenticate with, at the ingress and where it redirects if that is on the listener"
    parser.add_argument("--token-file", metavar="FILE", help=sent)
    parser.add_argument("--cacert", metavar="FILE", help="the CAs to trust instead of the system's")
    parser.add_argument(
        "--wait", default="0s", metavar="DURATION", help="repeat the checks until they pass, for up to 90s or 2m"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--junit", metavar="FILE", help="also write the results to FILE, as JUnit's XML")


def run(options: argparse.Namespace, snapshot: Snapshot) -> int:
    wait = duration(options.wait)
    ingresses = [expect(url, snapshot, options.topic) for url in dict.fromkeys(options.urls)]
    client = Client(_tls(options.cacert), options.cacert, _token(options.token_file), options.produce)
    if options.produce and (problem := missing_package()):
        raise CannotStart(f"--produce {problem}")
    progress, tried = Progress(sys.stderr), count(1)

    def show_progress(result: Result) -> None:
        progress.show(f"{next(tried)} checks made", f"{result.ingress.url} {result.check}")

    with ExitStack() as stack:
        try:  # before the checks, which may take minutes
            junit = stack.enter_context(open(options.junit, "wb")) if options.junit else None
        except OSError as fault:
            raise CannotStart(f"--junit {options.junit}: cannot be written: {fault.strerror}") from None
        try:
            results = asyncio.run(conform(ingresses, client, wait, show_progress))
        finally:
            progress.clear()
        if junit is not None:
            junit.write(as_junit(results))
    lines = [json.dumps(as_json(results), indent=2)] if options.json else as_lines(results, Palette(sys.stdout))
    for line in lines:
        sys.stdout.write(f"{line}\n")
    return 0 if holds(results) else _NOT_HELD


def duration(text: str) -> float:
    """Seconds, from `90`, `90s`, `2m` or `1m30s`."""
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|s|m|h)", text)
    if re.fullmatch(r"\d+(?:\.\d+)?", text):
        parts = [(text, "")]
    elif not parts or "".join(map("".join, parts)) != text:
        raise CannotStart(f"--wait '{text}' is not a duration: write 90s, 2m or 1m30s")
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def _tls(cacert: str | None) -> ClientTls:
    try:
        return ClientTls(cacert)
    except OSError as fault:  # of OpenSSL, too
        raise CannotStart(f"--cacert {cacert}: cannot be read: {fault.strerror or fault}") from None


def _token(path: str | None) -> str | None:
    if path is None:
        return None
    try:
        token = Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as fault:
        raise CannotStart(f"--token-file {path}: cannot be read: {getattr(fault, 'strerror', fault)}") from None
    if not re.fullmatch(r"[!-~]+", token):  # it becomes a header
        raise CannotStart(f"--token-file {path}: does not hold a token: one line of visible ASCII characters")
    return token
