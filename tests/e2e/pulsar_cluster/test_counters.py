"""What the pipeline counts in the events of two sidecars before real brokers is what their Prometheus counters say."""

import os
import re
import secrets
import subprocess
import sys
from collections import Counter
from pathlib import Path

import duckdb
import pytest
from brokers import HOST, HOST_PORT
from clients import talking
from cluster import Cluster
from gateways import URL, sidecar, sidecar_config
from ownership import give, lookup
from prometheus_client.parser import text_string_to_metric_families

Counts = Counter[tuple[str, ...]]

PREFIX = "pulsar_ingress_"
# By their listeners and reasons the two differ as much as they can: what one rewrites the other follows.
CONFIGS: tuple[dict[str, object], ...] = (
    {"redirects": {"lookup": "rewrite", "admin": "follow"}},
    {"redirects": {"lookup": "follow", "admin": "rewrite"}, "unknownListener": "forward"},
)


class Counters:
    """The counters of all sidecars together."""

    def __init__(self) -> None:
        self._found: dict[str, list[tuple[dict[str, str], int]]] = {}

    def scrape(self, cluster: Cluster) -> None:
        """Once nothing is on its way any more."""
        families = scraped(cluster)
        while families["in_flight_requests"][0][1]:
            families = scraped(cluster)
        for name, samples in families.items():
            self._found.setdefault(name, []).extend(samples)

    def by(self, name: str, *labels: str) -> Counts:
        counts: Counts = Counter()
        for found, value in self._found.get(name, ()):
            counts[tuple(found[label] for label in labels)] += value
        return +counts


def scraped(cluster: Cluster) -> dict[str, list[tuple[dict[str, str], int]]]:
    text = cluster.networks.inside.request("GET", "http://localhost:9090/metrics").body.decode()
    found: dict[str, list[tuple[dict[str, str], int]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith(PREFIX) and not sample.name.endswith(("_bucket", "_sum")):
                name = sample.name.removeprefix(PREFIX)
                found.setdefault(name, []).append((dict(sample.labels), int(sample.value)))
    return found


class Tables:
    """The tables as other engines read them; what is absent is the empty string, as a label is."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def by(self, table: str, count: str, *columns: str, where: str = "true") -> Counts:
        named = "".join(f"coalesce(cast({column} as text), ''), " for column in columns)
        with duckdb.connect() as duck:
            rows = duck.sql(f"select * from read_parquet('{self._folder}/{table}/**/*.parquet')").filter(where)
            found = rows.aggregate(f"{named}cast(coalesce(sum({count}), 0) as bigint)").fetchall()
        return +Counter({row[:-1]: row[-1] for row in found})


def new_topic(cluster: Cluster) -> str:
    """In a new namespace with one bundle, which nobody has."""
    name = f"public/counted-{secrets.token_hex(4)}"
    url = f"{cluster.brokers[0].web}/admin/v2/namespaces/{name}"
    made = cluster.request("PUT", url, {"bundles": {"numBundles": 1}})
    assert made.status == 204, made
    return f"persistent://{name}/orders"


@pytest.fixture
def topics(cluster: Cluster) -> list[str]:
    """One on each broker."""
    made = [new_topic(cluster) for _ in cluster.brokers]
    for topic, broker in zip(made, cluster.brokers, strict=True):
        give(cluster, topic, broker)
    return made


def visit(cluster: Cluster, topics: list[str]) -> None:
    """All that clients do: talk, look up, name listeners, come by a wrong name, administrate, and send nonsense."""
    with talking(cluster) as client:
        for topic in topics:
            client.subscribe(topic)
            client.produce(topic, "one")
            client.consume_until("one")
    statuses: Counter[int] = Counter()
    for _ in range(2 * len(cluster.brokers)):  # whom nobody has, brokers send to their leader
        answer = cluster.networks.outside.request("GET", URL + lookup(new_topic(cluster)))
        statuses[answer.status] += 1
    for number, topic in enumerate(topics):
        path = lookup(topic)
        for target, headers in (
            (path, {}),
            (f"{path}?listenerName=external", {}),
            (path, {"X-Pulsar-ListenerName": "external"}),
            (f"{path}?listenerName=internal", {}),
            (f"{path}?listenerName=nosuch", {}),
            (path, {"Host": f"new-{number}.example.net"}),
            (f"/admin/v2/{topic.replace('://', '/')}/stats", {}),
            (f"/admin/v2/{topic.replace('://', '/')}/stats", {"Host": "new.example.net"}),
            ("/nothing/here", {}),
        ):
            for _ in cluster.brokers:  # in turn each is asked, and all but one redirect
                answer = cluster.networks.outside.request("GET", URL + target, headers=headers)
                statuses[answer.status] += 1
    assert {200, 307, 400, 403, 404} <= statuses.keys()
    with cluster.networks.outside.connect(HOST, HOST_PORT) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 400 ")


@pytest.mark.timeout(600, func_only=True)  # Spark starts
def test_pipeline_tables_equal_the_prometheus_counters_of_the_sidecars(
    cluster: Cluster, topics: list[str], tmp_path: Path
) -> None:
    counters = Counters()
    for number, config in enumerate(CONFIGS):
        book = sidecar_config(cluster)["advertisedListeners"]
        assert isinstance(book, list)
        last = book[-1]
        # The second sidecar has no address for the last broker outside.
        if number:
            last["listeners"] = re.sub(r", external:[^,]+", "", last["listeners"])
        events = {"path": str(tmp_path / "events" / str(number)), "rotateSeconds": 1}
        with sidecar(cluster, **config, advertisedListeners=book, events=events) as child:
            visit(cluster, topics)
            counters.scrape(cluster)
            assert child.end() == 0
    assert counters.by("events_dropped_total", "reason") == {}
    tables = Tables(tmp_path / "tables")
    program = Path(sys.executable).with_name("pulsar-ingress-pipeline")
    places = ("--events", tmp_path / "events", "--tables", tmp_path / "tables")
    # Java's quick compiler is enough for a few hundred events.
    quick = os.environ | {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"}
    done = subprocess.run([program, "run", "--master", "local[2]", *places], capture_output=True, text=True, env=quick)
    assert done.returncode == 0, done.stderr
    assert "0 lines in quarantine" in done.stdout

    labels = ("ingress", "listener", "rule", "protocol")
    hits = counters.by("listener_hits_total", *labels)
    assert {rule for _, _, rule, _ in hits} == {"ingress"}
    assert tables.by("listener_windows", "hits", *labels) == hits
    misses = counters.by("listener_misses_total", "ingress", "reason", "protocol")
    assert {"no-rule", "not-allowed", "unknown-listener"} <= {reason for _, reason, _ in misses}
    assert tables.by("misses", "misses", "ingress", "reason", "protocol") == misses
    by_ingress = counters.by("listener_misses_total", "ingress", "protocol")
    assert tables.by("listener_windows", "misses", "ingress", "protocol") == by_ingress
    assert tables.by("namespaces", "lookups") == Counter({(): hits.total() + misses.total()})

    # All redirects of a request but the last were followed, or there would have been no other.
    redirects = counters.by("redirects_total", "listener", "kind", "action")
    assert {"rewritten", "followed", "passed"} <= {action for _, _, action in redirects}
    last_ones = tables.by(
        "events", "1", "listener", "kind", "redirect_action",
        where="redirect_action is not null and redirect_action <> 'followed'",
    )  # fmt: skip
    followed = tables.by("events", "hops", "listener", "kind", "'followed'")
    assert last_ones + followed == redirects
    assert {"rewritten", "followed"} <= {action for _, kind, action in redirects if kind == "lookup"}
    assert tables.by("namespaces", "redirects") == tables.by(
        "events", "1", where="redirect_from is not null and kind = 'lookup'"
    )
    unmapped = counters.by("unmapped_redirects_total", "listener")
    assert unmapped.keys() == {("external",)}
    assert tables.by("unmapped_addresses", "redirects", "listener") == unmapped
    leaks = counters.by("leaks_total", "listener", "where")
    assert ("external", "body") in leaks
    assert tables.by("events", "1", "listener", "leak", where="leak is not null") == leaks

    # Nonsense is answered and counted, but is no request that an event could tell of.
    nonsense: Counts = Counter({("other", "http", "400"): len(CONFIGS)})
    requests = counters.by("requests_total", "kind", "protocol", "code") - nonsense
    assert {kind for kind, _, _ in requests} == {"lookup", "admin", "other"}
    assert tables.by("events", "1", "kind", "protocol", "status") == requests
    by_kind: Counts = Counter()
    for (kind, _, _), count in requests.items():
        by_kind[kind,] += count
    assert tables.by("latency_windows", "requests", "kind") == by_kind
    assert counters.by("events_written_total").total() <= requests.total()
