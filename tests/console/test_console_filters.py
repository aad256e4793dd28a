"""Filters of decisions: the same for what is kept and for what is streamed, and what is counted is what they show."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlencode

import pytest
from consoles import HOST, LOOKUP, Place, serving
from simulated.cluster import Answer, SimulatedCluster, says

from pulsar_ingress_proxy.console import view
from pulsar_ingress_proxy.console.filters import Matcher
from pulsar_ingress_proxy.console.models import DecisionsQuery, Filter
from pulsar_ingress_proxy.observability.recent import Recent

PARTNER = {"name": "partner", "hosts": ["partner.example.net"], "listener": "external"}
UNAVAILABLE = says(Answer(503, b"no", "text/plain"))


@pytest.fixture
async def busy() -> AsyncIterator[Place]:
    """A sidecar with two ingresses that had something of each sort."""
    ingresses = [{"name": "public", "hosts": [HOST, f"*.{HOST}"], "listener": "external"}, PARTNER]
    async with SimulatedCluster(brokers=3) as cluster, serving(cluster, ingresses=ingresses) as place:
        await place.hit("Orders")
        await place.hit("payments")
        await place.miss("orders-elsewhere")
        assert await place.ask(f"{LOOKUP}named?listenerName=internal") == 403
        await place.leak()
        await place.redirect()
        await place.ask("/lookup/v2/topic/persistent/other/bundle/t", Authorization="Bearer t")  # is followed
        cluster.brokers[1].script.append(UNAVAILABLE)
        assert await place.ask(f"{LOOKUP}down", host="partner.example.net") == 503
        cluster.brokers[1].script.append(UNAVAILABLE)
        assert await place.ask("/admin/v2/clusters") == 503
        assert await place.ask(f"{LOOKUP}unread", Expect="the best") == 417
        yield place


async def found(place: Place, query: str) -> list[Any]:
    answer = await place.api(f"decisions?limit=500&{query}")
    assert answer["more"] == 0
    decisions: list[Any] = answer["decisions"]
    return decisions


def recent(place: Place) -> Recent:
    kept = place.sidecar._context.recorder._recent
    assert kept is not None
    return kept


@pytest.mark.parametrize(
    ("query", "topics"),
    [
        ("find=orders", ["orders-elsewhere", "Orders"]),
        ("find=ORDERS&only=hit", ["Orders"]),
        ("find=elsewhere.example", ["orders-elsewhere"]),
        ("find=partner.example", ["down"]),
        ("find=internal&only=miss", ["named"]),
        ("ingress=partner", ["down"]),
        ("ingress=public&only=miss", ["named"]),
        ("missReason=no-rule", ["orders-elsewhere"]),
        ("missReason=not-allowed&status=403", ["named"]),
        ("rule=none", ["orders-elsewhere"]),
        ("status=5xx&kind=lookup", ["down"]),
        ("status=503&ingress=public&kind=lookup", []),
        ("only=failure&kind=admin", [None]),
        ("only=failure", [None, "down"]),
        ("only=leak,failure", [None, "down", "leaking"]),
        ("protocol=binary", []),
        ("ingress=nobodys", []),
        ("find=&ingress=partner&kind=&status=", ["down"]),
    ],
)
async def test_filters_select_among_the_kept_decisions(busy: Place, query: str, topics: list[str | None]) -> None:
    names = [one["topic"] and one["topic"].rpartition("/")[2] for one in await found(busy, query)]
    assert names == topics


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("only=all", "only.0: Input should be 'leak', 'failure', 'miss', 'redirect' or 'hit'"),
        ("kind=topic", "kind: Input should be 'lookup', 'admin' or 'other'"),
        ("protocol=kafka", "protocol: Input should be"),
        ("rule=chance", "rule: Input should be 'query', 'header', 'bind', 'ingress', 'default' or 'none'"),
        ("status=6xx", "status: should be like 404"),
        ("status=5x", "status: should be like 404"),
        ("status=5xx%0A", "status: should be like 404"),
        ("topic=orders", "topic: is unknown"),
        ("Ingress=public", "Ingress: is unknown"),
        ("miss_reason=no-rule", "miss_reason: is unknown"),
        ("ingress=public&ingress=partner", "ingress: is there twice"),
        (f"find={'x' * 257}", "find: String should have at most 256 characters"),
    ],
)
async def test_unknown_filters_and_values_are_refused_with_400(place: Place, query: str, reason: str) -> None:
    for route in ("decisions", "decisions/stream"):
        answer = await place.get(f"/api/{route}?{query}")
        assert answer.status == 400
        assert (await answer.json())["reason"].startswith(f"bad-question: {reason}")


@pytest.mark.parametrize("limit", ["0", "501", "-1", "x", "1.5"])
async def test_limit_out_of_bounds_is_refused_with_400(place: Place, limit: str) -> None:
    assert (await place.get(f"/api/decisions?limit={limit}")).status == 400


async def test_values_that_openapi_lists_for_a_filter_are_accepted(place: Place) -> None:
    described = (await place.api("openapi.json"))["paths"]["/api/decisions"]["get"]["parameters"]
    listed = {
        parameter["name"]: parameter["schema"].get("enum") or parameter["schema"].get("items", {}).get("enum")
        for parameter in described
    }
    assert {name for name, values in listed.items() if values} == {"only", "rule", "protocol", "kind"}
    for name, values in listed.items():
        for value in values or []:
            await place.api(f"decisions?{name}={value}")


class TestCounts:
    @pytest.mark.parametrize(
        ("name", "query"),
        [
            ("hits", "only=hit"),
            ("misses", "only=miss"),
            ("redirects", "only=redirect"),
            ("leaks", "only=leak"),
            ("failures", "only=failure"),
            ("requests", ""),
        ],
    )
    async def test_each_count_is_the_number_of_decisions_that_its_filter_finds(
        self, busy: Place, name: str, query: str
    ) -> None:
        counts = (await busy.api("status"))["counts"]
        assert counts[name] == len(await found(busy, query)) > 0

    async def test_hits_and_misses_together_are_the_decisions_about_lookups(self, busy: Place) -> None:
        counts = (await busy.api("status"))["counts"]
        assert counts["hits"] + counts["misses"] == len(await found(busy, "kind=lookup"))

    async def test_hits_and_misses_of_an_ingress_are_the_decisions_of_its_filter(self, busy: Place) -> None:
        for ingress in (await busy.api("ingresses"))["ingresses"]:
            for name, only in (("hits", "hit"), ("misses", "miss")):
                assert ingress[name] == len(await found(busy, f"only={only}&ingress={ingress['name']}"))

    async def test_counts_agree_with_the_metrics(self, busy: Place) -> None:
        counts, metrics = (await busy.api("status"))["counts"], busy.sidecar.metrics
        assert counts["hits"] == sum(metrics.hits.values.values())
        assert counts["misses"] == sum(metrics.misses.values.values())
        assert counts["leaks"] == sum(metrics.leaks.values.values())

    async def test_request_with_several_redirects_counts_once(self, place: Place) -> None:
        ring = [f"http://{broker.name}:8080{LOOKUP}t" for broker in place.cluster.brokers]
        place.cluster.brokers[1].script.append(says(Answer(307, b"", location=ring[2])))
        place.cluster.brokers[2].script.append(says(Answer(307, b"", location=ring[0])))
        place.cluster.own("persistent://public/default/t", 0)
        assert await place.ask(f"{LOOKUP}t", Authorization="Bearer t") == 200
        (decision,) = await found(place, "only=redirect")
        assert decision["hops"] == 2
        assert (await place.api("status"))["counts"]["redirects"] == 1

    async def test_answer_says_how_many_decisions_were_made_and_are_kept(self, place: Place) -> None:
        for ring in recent(place)._rings.values():
            ring._room = 3
        for number in range(5):
            await place.miss(f"missed-{number}")
        await place.hit()
        answer = await place.api("decisions?only=miss&find=missed-4")
        assert (len(answer["decisions"]), answer["kept"], answer["made"]) == (1, 3, 5)
        answer = await place.api("decisions?limit=1")
        assert (len(answer["decisions"]), answer["more"], answer["kept"], answer["made"]) == (1, 3, 4, 6)

    async def test_decisions_made_during_a_search_are_in_none_of_its_counts(
        self, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(view, "PIECE", 1)
        for _ in range(3):
            await place.hit()
        (kept, *_), console = recent(place).after(0), place.sidecar._console
        assert console is not None
        searching = asyncio.create_task(console.view.decisions(DecisionsQuery(find="nothing")))
        await asyncio.sleep(0)
        recent(place).add(kept.line, kept.sorts)
        answer = await searching
        assert (answer.kept, answer.made, answer.cursor) == (3, 3, recent(place).cursor(3))

    async def test_status_that_http_does_not_define_is_no_failure_and_no_choice(self, place: Place) -> None:
        place.cluster.brokers[1].script.append(says(Answer(999, b"no", "text/plain")))
        assert await place.ask(LOOKUP + "odd") == 999
        counts = (await place.api("status"))["counts"]
        assert (counts["failures"], counts["unread"]) == (0, 0)
        assert "999" not in (await place.api("decisions/choices"))["status"]

    async def test_failures_outlive_hits(self, place: Place) -> None:
        for ring in recent(place)._rings.values():
            ring._room = 3
        place.cluster.brokers[1].script.append(UNAVAILABLE)
        assert await place.ask(LOOKUP + "down") == 503
        for _ in range(5):
            await place.hit()
        (decision,) = await found(place, "only=failure")
        assert decision["topic"].endswith("/down")

    async def test_connection_refused_by_overload_is_counted_as_unread_and_is_no_decision(self) -> None:
        async with SimulatedCluster(brokers=2) as cluster, serving(cluster, limits={"connections": 1}) as place:
            await place.hit()
            port = place.sidecar.http_servers[0].port
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert b"503" in await reader.readline()
            writer.close()
            counts = (await place.api("status"))["counts"]
            assert (counts["failures"], counts["unread"], counts["requests"]) == (0, 1, 2)
            assert len(await found(place, "")) == 1


class TestChoices:
    async def test_choices_are_what_the_config_knows_and_what_was_counted(self, busy: Place) -> None:
        choices = await busy.api("decisions/choices")
        assert choices["ingress"] == ["partner", "public"]
        assert choices["listener"] == ["external", "internal"]
        assert choices["missReason"] == ["no-rule", "not-allowed"]
        assert {"200", "307", "403", "503"} <= set(choices["status"])

    async def test_ingress_that_a_reload_removed_stays_a_choice(self, busy: Place) -> None:
        await busy.reload(ingresses=[])
        assert (await busy.api("decisions/choices"))["ingress"] == ["partner", "public"]

    async def test_every_choice_finds_a_decision_or_none_and_is_never_refused(self, busy: Place) -> None:
        for name, values in (await busy.api("decisions/choices")).items():
            for value in values:
                decisions = await found(busy, urlencode({name: value}))
                assert {str(one[name]) for one in decisions} <= {value}

    async def test_names_of_clients_are_no_choices(self, place: Place) -> None:
        await place.reload(unknownListener="forward", advertisedListeners=[])
        await place.ask(f"{LOOKUP}t?listenerName=made-up")
        choices = await place.api("decisions/choices")
        assert "made-up" not in str(choices)
        assert "other" not in choices["listener"]  # the label that such names are counted by

    async def test_listener_that_is_called_like_the_label_for_unknown_ones_is_a_choice(self, place: Place) -> None:
        await place.reload(ingresses=[{"name": "public", "hosts": [HOST], "listener": "other"}])
        assert "other" in (await place.api("decisions/choices"))["listener"]


async def test_search_gives_way_to_clients_between_pieces(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "PIECE", 1)
    for number in range(8):
        await place.hit(f"topic-{number}")
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.ensure_future(count())
    console = place.sidecar._console
    assert console is not None
    kept = await console.view.matching(Matcher(Filter(find="topic-3")), 0)
    counting.cancel()
    assert [one.number for one in kept] == [4]
    assert turns >= 7
