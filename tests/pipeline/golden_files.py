"""A small set of events with all that is odd, and what the commands make of it, kept to be looked at and compared.

    python tests/pipeline/golden_files.py

writes `golden/` anew: the events, and with the real commands the tables, the report's words, and what `suggest` and
`replay` print. What then differs from the commit is what a change has done.
"""

import contextlib
import gzip
import io
import itertools
import json
import random
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from datetime import datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from unittest import mock

import duckdb
from deltalake import DeltaTable
from made_events import MISS, Event, event, line
from pyspark.sql import SparkSession

from pulsar_ingress_pipeline.cli import main
from pulsar_ingress_pipeline.session import session
from pulsar_ingress_pipeline.tables import DERIVED

GOLDEN = Path(__file__).parent / "golden"
CONFIG, OTHER = GOLDEN / "config.yaml", GOLDEN / "other.yaml"
EVENTS, TABLES = GOLDEN / "events", GOLDEN / "tables"
DAY = 86_400
NAMES = ["quarantine", *(table.name for table in DERIVED)]


def odd_events() -> Iterator[Event]:
    """One of each that a table looks at."""
    number = iter(range(1, 1000))

    def one(seconds: float, **changes: Any) -> Event:
        return event(next(number), seconds, **changes)

    # Misses of every reason, by hosts as clients write them.
    for place in range(12):
        yield one(60 + place, **MISS | {"host": "New.example.com:8443", "broker": None})
    for place, host in enumerate(["new.example.com.", "[2001:DB8::1]:8080", "under_score", "bad host!", "", None]):
        yield one(80 + place, **MISS | {"host": host, "broker": None})
    for place, reason in enumerate(["not-allowed", "unknown-listener", "client-named", "bad-listener-name"]):
        named = {"clientNamed": "internal", "clientNamedBy": "query" if place % 2 else "header"}
        yield one(90 + place, **MISS | named | {"missReason": reason, "ingress": "public", "rule": "query"})
    for place, reason in enumerate(["not-exposed", "broker-lacks-listener", "overloaded", "conflicting-names"]):
        yield one(95 + place, **MISS | {"missReason": reason, "ingress": "public", "rule": "ingress"})
    # Clients that name a listener and get it; the default; a socket; binary.
    yield one(100, clientNamed="partner", clientNamedBy="query", rule="query", listener="partner")
    yield one(101, clientNamed="partner", clientNamedBy="header", rule="header", listener="partner", userAgent=None)
    yield one(102, ingress=None, rule="default", host="by-default.example.com")
    yield one(103, ingress=None, rule="bind", bind="0.0.0.0:9443", host="any.example.com", listener="partner")
    yield one(104, protocol="binary", host=None, serverName="pulsar.example.com", method=None, scheme="pulsar+ssl")
    yield one(105, kind="admin", topic=None, method="PUT")
    yield one(106, kind="other", tenant=None, namespace=None, topic=None, listener=None, rule="none", hit=False)
    # Redirects: each action, an unmapped one, a circle of two, one of three, and one that the sidecar gave up.
    inside = "http://broker-7.pulsar.svc:8080/lookup/v2/topic/persistent/acme/orders/paid"
    for place, action in enumerate(["rewritten", "followed", "passed", "kept", "refused"]):
        yield one(
            120 + place, redirectAction=action, redirectFrom=inside, redirectTo=f"https://b7.example.com/{action}",
            hops=1 if action == "followed" else 0,
        )  # fmt: skip
    for place in range(11):
        yield one(130 + place, redirectAction="followed", redirectFrom=inside.replace("7", "2"), hops=1 + place % 3)
    for start, path in ((150.0, "pulsar a b a b"), (170.0, "pulsar a b c a"), (190.0, "pulsar a b")):
        hosts = [f"{name}.example.com" for name in path.split()]
        for place, (source, target) in enumerate(itertools.pairwise(hosts)):
            yield one(
                start + place / 10, host=source, topic=f"persistent://acme/orders/{path.replace(' ', '-')}",
                redirectAction="rewritten", redirectFrom=f"http://{target}.svc:8080/x", redirectTo=f"https://{target}/x",
            )  # fmt: skip
    yield one(
        200, redirectAction="refused", redirectFrom=inside, redirectTo="http://broker-7.pulsar.svc:8080/x", hops=5
    )
    # Leaks; owners that change; generations; another sidecar; hosts that had an ingress and have none.
    yield one(210, leak="location", redirectAction="passed", redirectFrom="http://broker-9.svc:8080/x")
    yield one(211, leak="body", userAgent="Pulsar-CPP-v3.7.0")
    for place, broker in enumerate(["broker-0", "broker-1", "broker-1", None, "broker-0"]):
        yield one(220 + place, topic="persistent://acme/billing/moves", namespace="billing", broker=broker)
    for place in range(20):
        yield one(300 + place, generation=8, sidecar="gateway-1", **(MISS if place % 4 == 0 else {}))
    for place in range(20):
        yield one(400 + place, generation=9, sidecar="gateway-1")
    yield one(420, host="old.example.com")
    yield one(3700, **MISS | {"host": "old.example.com"})
    for place in range(10):
        yield one(7300 + place, ingress="partners", host="eu.partner.example", durationMs=300.0 if place < 2 else 2.0)


def usual_days() -> Iterator[Event]:
    """The same hour of some days, the fourth of them with many misses, the fifth slow and with few lookups."""
    draw = random.Random(7)
    for day in range(5):
        for place in range(30 if day == 4 else 110):
            missed = MISS | {"ingress": "public", "missReason": "not-allowed"} if day == 3 and place % 3 == 0 else {}
            slow = 40 if day == 4 else 1
            yield event(
                10_000 + 1000 * day + place,
                (day - 5) * DAY + place * 30,
                durationMs=round(slow * draw.lognormvariate(1, 0.5), 3),
                topic=f"persistent://acme/orders/{draw.randrange(5)}",
                broker=f"broker-{draw.randrange(3)}",
                **missed,
            )


BAD = [
    b"\xff\xfe no text\n", b"rubbish\n", b"{}\n", b'{"id":"x"}\n', b"\n", line(event(1)) [:-40] + b"\n",
    line(event(2)).rstrip() + line(event(3)), line(event(4, status="200")), line(event(5, time="yesterday")),
]  # fmt: skip


def write_events() -> None:
    shutil.rmtree(EVENTS, ignore_errors=True)
    EVENTS.mkdir(parents=True)
    odd = list(odd_events())
    newer = event(900, 500) | {"schema": 2, "colour": "blue"}
    twice = [odd[3], odd[0] | {"broker": "later"}]  # of two with the same id and time the first counts
    lines = [*map(line, odd), line(newer), *map(line, twice), *BAD]
    (EVENTS / "odd.jsonl").write_bytes(b"".join(lines))
    days = b"".join(line(made) for made in usual_days())
    (EVENTS / "days.jsonl.gz").write_bytes(gzip.compress(days, mtime=0))
    # Stored, so that all before the break can be read, whoever reads it.
    torn = gzip.compress(b"".join(line(event(950 + place, 600 + place)) for place in range(4)), 0, mtime=0)
    (EVENTS / "torn.jsonl.gz").write_bytes(torn[:-600])


def rows(tables: Path, name: str, events: Path) -> str:
    """A table as lines of JSON, in an order of their own, with numbers as exact as engines agree on."""
    with duckdb.connect() as duck:
        duck.execute("set timezone = 'UTC'")
        table = DeltaTable(str(tables / name)).to_pyarrow_table()
        found = duck.from_arrow(table)
        told = [
            json.dumps({column: _plain(value, events) for column, value in zip(found.columns, row, strict=True)})
            for row in found.fetchall()
        ]
    return "".join(f"{row}\n" for row in sorted(told))


def _plain(value: object, events: Path) -> object:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    if isinstance(value, str):
        return value.replace(str(events), "EVENTS")
    return value if isinstance(value, int | list) or value is None else str(value)


class _Words(HTMLParser):
    """What a reader reads, a line for each piece of it."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self._skipped = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._skipped += tag in ("style", "script")

    def handle_endtag(self, tag: str) -> None:
        self._skipped -= tag in ("style", "script")

    def handle_data(self, data: str) -> None:
        if data.strip() and not self._skipped:
            self.words.append(data.strip())


def words(html: str, tables: Path) -> str:
    """The report without what each run has of its own."""
    reader = _Words()
    reader.feed(html)
    told = "\n".join(reader.words) + "\n"
    told = re.sub(r"Made by pulsar-ingress-pipeline \S+, [-0-9: ]+ UTC", "Made by VERSION, NOW UTC", told)
    return told.replace(str(tables), "TABLES")


def printed(*arguments: str | Path) -> tuple[int, str, str]:
    """What a command exits with and prints."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(argument) for argument in arguments])
    return code, out.getvalue(), err.getvalue()


@contextlib.contextmanager
def one_session(spark: SparkSession) -> Iterator[None]:
    """Commands start Spark and end it; here they all have one, that somebody else ends."""
    with mock.patch(
        "pulsar_ingress_pipeline.session.session", side_effect=lambda *_, **__: contextlib.nullcontext(spark)
    ):
        yield


def _write_all() -> None:
    write_events()
    shutil.rmtree(TABLES, ignore_errors=True)
    TABLES.mkdir()
    with tempfile.TemporaryDirectory() as folder:
        tables, report = Path(folder) / "tables", Path(folder) / "report.html"
        code, _, err = printed("run", "--events", EVENTS, "--tables", tables)
        assert code == 0, err
        for name in NAMES:
            (TABLES / f"{name}.jsonl").write_text(rows(tables, name, EVENTS))
        assert printed("report", "--tables", tables, "--out", report, "--config", CONFIG)[0] == 0
        (GOLDEN / "report.txt").write_text(words(report.read_text(), tables))
        (GOLDEN / "suggest.yaml").write_text(printed("suggest", "--tables", tables, "--config", CONFIG)[1])
        (GOLDEN / "replay.txt").write_text(printed("replay", "--events", EVENTS, "--config", OTHER)[1])


if __name__ == "__main__":
    with session("local[2]", {"spark.sql.shuffle.partitions": "1"}) as started, one_session(started):
        _write_all()
    sys.stdout.write(f"{GOLDEN}: look at what has changed\n")
