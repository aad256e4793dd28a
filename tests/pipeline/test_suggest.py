"""What is suggested passes `check`, and turns the misses that ask for it into hits."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
import yaml
from delta_tables import SEEN, counts, put, texts

from pulsar_ingress_pipeline.faults import PipelineFault
from pulsar_ingress_pipeline.lake.catalog import Lake
from pulsar_ingress_pipeline.suggest import (
    Evidence,
    Seen,
    as_yaml,
    read,
    suggest,
    unused,
    unused_hosts,
    used_listeners,
)
from pulsar_ingress_proxy.cli import main
from pulsar_ingress_proxy.config import load_mapping
from pulsar_ingress_proxy.routing.decision_cache import DecisionCache
from pulsar_ingress_proxy.routing.decisions import decide
from pulsar_ingress_proxy.routing.paths import Target
from pulsar_ingress_proxy.routing.redirects import decide_redirect
from pulsar_ingress_proxy.routing.requests import Request
from pulsar_ingress_proxy.routing.selection import select
from pulsar_ingress_proxy.routing.snapshot import build
from pulsar_ingress_proxy.syntax.authorities import parse_authority

LOOKUP = Target("lookup", "lookup")
TIME = datetime(2026, 11, 16, 9, tzinfo=UTC)

CONFIG: dict[str, Any] = {
    "brokers": {"webServiceUrl": ["http://broker:8080"]},
    "ingresses": [
        {"name": "public", "hosts": ["pulsar.example.com"], "listener": "external", "expose": ["lookup", "client"]}
    ],
    "advertisedListeners": [
        {
            "broker": f"broker-{number}.pulsar.svc",
            "listeners": f"internal:http://broker-{number}.pulsar.svc:8080,external:https://b{number}.example.com",
        }
        for number in (0, 1)
    ],
}


BY_PARTNERS = {"name": "partners", "hosts": ["pulsar.partner.example"], "listener": "partner"}


def seen(what: str, count: int = 100, listener: str | None = None) -> Seen:
    return Seen(what, listener, count, TIME, TIME)


def appended(config: dict[str, Any], text: str) -> dict[str, Any]:
    """As an operator pastes it."""
    found = yaml.safe_load(text)
    return config | {key: [*config.get(key, []), *found[key]] for key in found}


def tables(
    root: Path,
    missed: dict[str | None, int],
    unmapped: dict[str, int],
    server_names: dict[str, int] | None = None,
    hits: dict[str | None, int] | None = None,
) -> Lake:
    """What `suggest` reads: misses by host and by server name, unmapped redirects, hits by listener."""
    misses = texts("host", "reason") | counts("misses") | SEEN
    put(root / "misses", misses, [(host, "no-rule", count, TIME, TIME) for host, count in missed.items()])
    addresses = texts("listener", "address") | counts("redirects") | SEEN
    put(root / "unmapped_addresses", addresses, [("external", to, n, TIME, TIME) for to, n in unmapped.items()])
    used = {"external": 100} if hits is None else hits
    put(root / "listener_windows", texts("listener") | counts("hits"), list(used.items()))
    hosts = texts("host", "ingress", "protocol") | counts("misses") | SEEN
    found = [("known.example.com", "public", "binary", 40), ("web.example.com", None, "http", 40)]
    found += [(name, None, "binary", count) for name, count in (server_names or {}).items()]
    put(root / "hosts", hosts, [(*row, TIME, TIME) for row in found])
    return Lake(str(root))


def test_suggested_config_passes_check_and_turns_misses_into_hits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From tables to a suggestion, to a config that `check` takes and under which the same requests hit."""
    missed: dict[str | None, int] = {"new.example.com:8443": 7, "New.example.com": 5, "rare.example.com": 2}
    missed |= {"under_score": 12, "bad host!": 12, None: 50}
    lake = tables(tmp_path / "tables", missed, {"broker-2.pulsar.svc:8080": 11})
    suggestions = suggest(read(lake), CONFIG)
    text = as_yaml(suggestions)
    assert "# 12 misses (no-rule) between 2026-11-16 09:00" in text
    assert "# 11 unmapped redirects" in text
    assert "# ingresses: under_score: 12 misses" in text
    assert "rare" not in text

    mended = appended(CONFIG, text)
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(mended))
    assert main(["check", "--config", str(config)]) == 0
    assert "new.example.com -> external" in capsys.readouterr().out
    snapshot = build(load_mapping(mended))
    decision = decide(Request(LOOKUP, parse_authority("new.example.com:8443")), snapshot)
    assert (decision.miss_reason, decision.selection.listener) == (None, "external")
    assert decision.selection.ingress is not None
    assert decision.selection.ingress.expose == frozenset({"lookup", "client"})
    request = Request(LOOKUP, parse_authority("pulsar.example.com"), scheme="https")
    decisions = DecisionCache(snapshot)
    found = decide_redirect(
        "http://broker-2.pulsar.svc:8080/lookup/v2/topic/x", request, select(request, snapshot), decisions
    )
    assert (found.action, found.location) == (
        "rewritten",
        "https://b2.example.com/lookup/v2/topic/x?listenerName=external",
    )


def test_most_used_listener_is_suggested_unless_a_default_listener_is_set() -> None:
    evidence = Evidence([seen("new.example.com")], [], ["internal", "external"])
    [found] = suggest(evidence, CONFIG | {"miss": "reject"})
    assert found.element is not None
    assert found.element["listener"] == "internal"
    # With a default no host is a miss any more.
    assert suggest(evidence, CONFIG | {"lookupListenerName": "external"}) == []


@pytest.mark.parametrize(
    ("used", "changes", "listener"),
    [
        (["invented", "external"], {}, "external"),
        (["invented", "internal"], {}, "internal"),  # of advertisedListeners, and of no ingress
        (["partner"], {"advertisedListeners": [], "ingresses": [BY_PARTNERS]}, "partner"),
        (["invented"], {}, None),
        (["external"], {"advertisedListeners": [], "ingresses": []}, None),
    ],
)
def test_only_a_listener_that_the_config_knows_is_suggested(
    used: list[str], changes: dict[str, Any], listener: str | None
) -> None:
    [found] = suggest(Evidence([seen("new.example.com")], [], used), CONFIG | changes)
    assert (found.element or {}).get("listener") == listener
    if listener is None:
        assert f"the config has none of the listeners that were used ({used[0]}): name one" in found.comment


def test_without_a_config_only_a_listener_that_had_hits_is_suggested(tmp_path: Path) -> None:
    assert used_listeners(pa.table({"listener": ["a", "b", "c", "b", None], "hits": [2, 1, 0, 2, 9]})) == ["b", "a"]
    lake = tables(tmp_path, {"new.example.com": 20}, {}, hits={"never-hit": 0, None: 5})
    [found] = suggest(read(lake), None)
    assert found.element is None
    assert "no listener was ever used: name one" in found.comment


def test_ingress_is_suggested_from_misses_without_a_config() -> None:
    text = as_yaml(suggest(Evidence([seen("new.example.com")], [], ["external"]), None))
    assert yaml.safe_load(text) == {
        "ingresses": [{"name": "new-example-com", "hosts": ["new.example.com"], "listener": "external"}]
    }


@pytest.mark.parametrize(
    ("evidence", "comment"),
    [
        (Evidence([seen("a.example.com")], []), "no listener was ever used"),
        (
            Evidence([], [seen("strange.svc:8080", listener="external")], ["external"]),
            "strange.svc:8080 has no address on",
        ),
    ],
)
def test_incomplete_evidence_gives_a_comment_and_no_config(evidence: Evidence, comment: str) -> None:
    text = as_yaml(suggest(evidence, CONFIG))
    assert comment in text
    assert yaml.safe_load(text) == {}


def test_nothing_is_suggested_below_the_support_or_for_known_hosts_and_brokers() -> None:
    hosts = [seen("few.example.com", 9), seen("pulsar.example.com"), seen("not a host")]
    known = [seen("broker-1.pulsar.svc:8080", listener="external")]
    text = as_yaml(suggest(Evidence(hosts, known, ["external"]), CONFIG))
    assert yaml.safe_load(text) == {}


def test_suggested_ingress_names_are_unique() -> None:
    taken = CONFIG | {"ingresses": [{"name": "new-example-com", "hosts": ["x.example.com"], "listener": "external"}]}
    found = suggest(Evidence([seen("new.example.com"), seen("new-example.com")], [], ["external"]), taken)
    assert [suggestion.element and suggestion.element["name"] for suggestion in found] == [
        "new-example-com-2",
        "new-example-com-3",
    ]


def test_configured_hosts_without_requests_are_listed_in_a_comment() -> None:
    config = load_mapping(
        CONFIG
        | {
            "ingresses": [
                {"name": "public", "hosts": ["Pulsar.example.com", "*.example.com"], "listener": "external"},
                {"name": "wide", "hosts": ["*.eu.example.com", "old.example.org"], "listener": "external"},
            ]
        }
    )
    # The longer wildcard takes what both would, and an exact host takes its own.
    assert unused(config, ["a.eu.example.com", "bad host!", "", "10.0.0.1"]) == [
        ("public", "pulsar.example.com"),
        ("public", "*.example.com"),
        ("wide", "old.example.org"),
    ]
    found = unused(config, ["pulsar.example.com", "b.example.com", "c.eu.example.com"])
    text = as_yaml([], unused=found)
    assert "# ingresses: wide has old.example.org, which nobody requested\n" in text
    assert yaml.safe_load(text) == {}
    assert "the table `hosts` is missing" in as_yaml([], unused=None)


def test_binary_misses_and_redirects_lead_to_suggestions(tmp_path: Path) -> None:
    """A server name is to it what a host is, and a broker's address has another port."""
    lake = tables(tmp_path, {}, {"broker-4.pulsar.svc:6650": 11}, {"sni.example.com": 12})
    lines = [
        {
            "broker": f"broker-{number}.pulsar.svc",
            "listeners": f"internal:pulsar://broker-{number}.pulsar.svc:6650,external:pulsar://b{number}.example.com:6650",
        }
        for number in (0, 1)
    ]
    config = {
        "bindAddresses": ["external:pulsar://0.0.0.0:6650"],
        "brokers": {"brokerServiceUrl": ["pulsar://broker:6650"]},
        "advertisedListeners": lines,
    }
    found = yaml.safe_load(as_yaml(suggest(read(lake), config)))
    assert found == {
        "ingresses": [{"name": "sni-example-com", "hosts": ["sni.example.com"], "listener": "external"}],
        "advertisedListeners": [
            {
                "broker": "broker-4.pulsar.svc",
                "listeners": "internal:pulsar://broker-4.pulsar.svc:6650,external:pulsar://b4.example.com:6650",
            }
        ],
    }


def test_odd_broker_addresses_cannot_break_out_of_a_comment() -> None:
    odd = Evidence([], [seen("evil\nkey:80", listener="external"), seen("a\u2028b:1", listener="external")])
    assert yaml.safe_load(as_yaml(suggest(odd, CONFIG))) == {}


def test_unused_hosts_are_unknown_without_the_table_of_hosts(tmp_path: Path) -> None:
    put(tmp_path / "misses", texts("host"), [])
    assert unused_hosts(Lake(str(tmp_path)), load_mapping(CONFIG)) is None
    put(tmp_path / "hosts", texts("host"), [("pulsar.example.com",), (None,), ("other.example.com",)])
    assert unused_hosts(Lake(str(tmp_path)), load_mapping(CONFIG)) == []
    with pytest.raises(PipelineFault, match="misses: the table has no column misses, first_seen, last_seen, reason"):
        read(Lake(str(tmp_path)))
