"""docs/report.png: the top of a report of made-up numbers, as a browser shows it.

    python tests/pipeline/report_picture.py [FILE.png] [FILE.html]

The whole page goes to the second file, to be looked at. Needs chromium.
"""

import math
import random
import subprocess
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from report_rows import (
    Anomaly,
    Generation,
    Leak,
    Loop,
    Miss,
    Moved,
    Namer,
    Namespace,
    Objective,
    Owner,
    Redirects,
    Stray,
    Unmapped,
)

from pulsar_ingress_pipeline.report import Report, page
from pulsar_ingress_pipeline.report.records import Bins, Flow, Hits, Latency, Numbers, Top

PICTURE = Path(__file__).parents[2] / "docs" / "report.png"
WIDTH, HEIGHT = 1040, 1470
START = datetime(2026, 11, 14, tzinfo=UTC)
HOURS = 72
INGRESSES = {"public": 900, "partners": 320, "internal-eu": 140}


def _volume(place: int) -> float:
    """More by day than by night."""
    return 1 + 0.55 * math.sin((place % 24 - 8) / 24 * 2 * math.pi)


def example() -> Report:
    draw = random.Random(3)
    hits: list[Hits] = []
    ingresses: list[Latency] = []
    whole: list[Latency] = []
    for place in range(HOURS):
        for ingress, usual in INGRESSES.items():
            lookups = int(usual * _volume(place) * draw.uniform(0.94, 1.06))
            missed = int(lookups * (0.17 if ingress == "partners" and 40 <= place < 46 else draw.uniform(0, 0.006)))
            hits.append(Hits(place, ingress, lookups - missed, missed))
            p50 = draw.uniform(1.8, 2.4) * (3.5 if ingress == "internal-eu" and 55 <= place < 60 else 1)
            ingresses.append(Latency(place, ingress, lookups, p50, p50 * 3, p50 * 6, p50 * draw.uniform(3.2, 4.4)))
        hits.append(Hits(place, None, 0, int(30 * draw.random())))
        newest = ingresses[-3:]
        middle = sum(cell.p50 * cell.requests for cell in newest) / sum(cell.requests for cell in newest)
        whole.append(Latency(place, None, 1000, middle, middle * 3.1, middle * 6.4, middle * 4))
    lookups, found = sum(cell.hits + cell.misses for cell in hits), sum(cell.hits for cell in hits)
    end = START + timedelta(hours=HOURS)
    ways = [("public", "external", 0.62), ("partners", "partner", 0.25), ("internal-eu", "internal", 0.12)]
    flows = [
        Flow(ingress, listener, f"pulsar-broker-{broker}.pulsar.svc:8080", True, int(lookups * share * part))
        for ingress, listener, share in ways
        for broker, part in enumerate((0.42, 0.33, 0.25))
    ]
    flows.append(Flow(None, None, None, False, sum(cell.misses for cell in hits if cell.ingress is None)))
    flows.append(Flow("partners", None, None, False, sum(cell.misses for cell in hits if cell.ingress == "partners")))
    return Report(
        tables="s3a://lake/pulsar/tables",
        made=end,
        clusters=("pulsar",),
        numbers=Numbers("s3a://lake/pulsar/tables", end, end, lookups, found, 412, 37, 3),
        bins=Bins(START, timedelta(hours=1), HOURS),
        hits=tuple(hits),
        latency=tuple(whole),
        latency_by_ingress=tuple(ingresses),
        flows=tuple(flows),
        redirects=Top((Redirects("lookup", "rewritten", 0, 9120), Redirects("lookup", "followed", 1, 2210),
                   Redirects("lookup", "followed", 2, 190), Redirects("admin", "rewritten", 0, 640)), 4, 12_160),
        leaks=Top((Leak("public", "external", "location", "pulsar-broker-9.pulsar.svc:8080", "Pulsar-Java-v4.0.1", 31,
                        START + timedelta(hours=20), end),), 1, 31),
        loops=Top((Loop("external", "persistent://acme/orders/paid", "client",
                        ("broker-0.pulsar.example.com:443", "broker-2.pulsar.example.com:443"), 14,
                        START + timedelta(hours=41), START + timedelta(hours=41, minutes=2)),), 1, 14),
        objectives=Top((Objective("public", 512_300, 511_480, 0.84), Objective("partners", 181_900, 181_010, 0.51),
                    Objective("internal-eu", 79_400, 78_480, -0.16))),
        strays=Top((Stray("pulsar-new.example.com", "seen-not-configured", None, 980, 950, START, end),
                    Stray("eu.partner.example", "no-longer-configured", "partners", 210, 205,
                          START + timedelta(hours=40), end)), 2, 1190),
        unused=[("partners", "legacy.partner.example")],
        listener="external",
        known_listeners=frozenset({"external", "partner", "internal"}),
        generations=Top((Generation("gateway-1", 12, START + timedelta(hours=40), 4100, 3444, -0.157),
                         Generation("gateway-1", 13, START + timedelta(hours=46), 9800, 9770, 0.156)), 2, 2170),
        anomalies=Top((Anomaly(START + timedelta(hours=56), "internal-eu", "p95_ms", 24.1, 6.6, 9, 17.5),
                       Anomaly(START + timedelta(hours=43), "partners", "miss_ratio", 0.171, 0.003, 9, 16.8)), 2, 34),
        misses=Top((Miss(None, "pulsar-new.example.com", "no-rule", "http", 950, START, end),
                    Miss("partners", "eu.partner.example", "not-allowed", "http", 310, START, end, "external")),
                   2, 1260),
        unmapped=Top((Unmapped("external", "pulsar-broker-3.pulsar.svc:8080", 412, START, end),), 1, 412),
        owners=Top((Owner("persistent://acme/orders/paid", 9100, 21, 3),
                    Owner("persistent://acme/billing/sent", 4100, 16, 2)), 2, 37),
        topics=1840,
        moved=Top((Moved("acme/orders", 1, 21), Moved("acme/billing", 1, 16))),
        namers=Top((Namer("Pulsar-CPP-v3.7.0", "acme", "external", 1200),), 1, 1200),
        namespaces=Top((Namespace("acme", "orders", 52_000, 120, 900), Namespace("acme", "billing", 31_000, 300, 80)),
                       2, 83_420),
    )  # fmt: skip


def main(picture: Path, html: Path | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = html or Path(folder) / "report.html"
        file.write_text(page(example(), None), encoding="utf-8")
        size = f"--window-size={WIDTH},{HEIGHT}"
        command = ["chromium", "--headless", "--no-sandbox", "--hide-scrollbars", size, f"--screenshot={picture}"]
        subprocess.run(
            [*command, f"--user-data-dir={folder}/profile", file.resolve().as_uri()], check=True, timeout=300
        )


if __name__ == "__main__":
    given = [Path(argument) for argument in sys.argv[1:]]
    main(given[0] if given else PICTURE, given[1] if len(given) > 1 else None)
