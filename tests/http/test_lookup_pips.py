"""PIP-95 and PIP-338 by name: what each promises about listeners of lookups holds through the sidecar."""

from __future__ import annotations

import pytest
from cluster_cases import ELSEWHERE, LISTENERS, LOOKUP, TOPIC, Fields, as_sent, both, both_families, in_full, in_partner
from sidecars import HEADER, HOST, INGRESS, Keys, external, named, serving

from pulsar_ingress_proxy.demo.cluster import SimulatedCluster, Topic
from pulsar_ingress_proxy.demo.metadata import Family


class TestPip95:
    """PIP-95: smart listener selection with multiple bind addresses."""

    async def test_pip_95_bind_address_selects_its_listener_by_default(self) -> None:
        async with SimulatedCluster(listeners=LISTENERS) as cluster:
            cluster.own(TOPIC, 1)
            binds = "external:http://127.0.0.1:0,partner:http://127.0.0.2:0"
            async with serving(cluster, **both(cluster), bindAddresses=binds) as client:
                assert (await client.send(LOOKUP, host=ELSEWHERE, bind=0)).json == in_full(1)
                assert (await client.send(LOOKUP, host=ELSEWHERE, bind=1)).json == in_partner(1)
                assert await client.counted("listener_hits_total") == {
                    ("public", "external", "bind", "http"): 1,
                    ("partners", "partner", "bind", "http"): 1,
                }

    @pytest.mark.parametrize(
        ("query", "headers", "rule"),
        [("?listenerName=partner", [], "query"), ("", [(HEADER, "partner")], "header")],
    )
    async def test_pip_95_client_named_listener_beats_listener_of_bind_address(
        self, query: str, headers: Fields, rule: str
    ) -> None:
        async with SimulatedCluster(listeners=LISTENERS) as cluster:
            cluster.own(TOPIC, 1)
            async with serving(cluster, **both(cluster), bindAddresses="external:http://127.0.0.1:0") as client:
                assert (await client.send(LOOKUP + query, headers=headers)).json == in_partner(1)
                assert await client.counted("listener_hits_total") == {("public", "partner", rule, "http"): 1}

    async def test_pip_95_bind_address_without_listener_selects_none(self) -> None:
        async with SimulatedCluster(listeners=LISTENERS) as cluster:
            cluster.own(TOPIC, 1)
            keys: Keys = {**both(cluster), "ingresses": []}
            async with serving(cluster, **keys, bindAddresses="http://127.0.0.1:0") as client:
                assert (await client.send(LOOKUP)).json == as_sent(1)
                assert await client.counted("listener_misses_total") == {("", "no-rule", "http"): 1}

    async def test_pip_95_listener_header_selects_the_listener(self) -> None:
        # A gateway can inject headers, not query parameters: what clients cannot say, it says for them.
        async with SimulatedCluster(listeners=LISTENERS) as cluster:
            cluster.own(TOPIC, 1)
            async with serving(cluster, **{**both(cluster), "ingresses": []}) as client:
                assert (await client.send(LOOKUP, headers=[(HEADER, "partner")])).json == in_partner(1)

    async def test_pip_95_listener_header_counts_only_without_listener_in_query(self) -> None:
        async with SimulatedCluster(listeners=LISTENERS) as cluster:
            cluster.own(TOPIC, 1)
            async with serving(cluster, **both(cluster)) as client:
                for query, expected in (("", in_partner(1)), ("?listenerName=external", in_full(1))):
                    assert (await client.send(LOOKUP + query, headers=[(HEADER, "partner")])).json == expected

    @pytest.mark.parametrize("by", ["query", "header"])
    async def test_pip_95_unknown_listener_name_gets_400(self, by: str) -> None:
        async with SimulatedCluster() as cluster, serving(cluster) as client:
            query, headers = ("?listenerName=nowhere", []) if by == "query" else ("", [(HEADER, "nowhere")])
            reply = await client.send(LOOKUP + query, headers=headers)
            assert reply.refusal == (400, "unknown-listener")
            assert "nowhere" in reply.json["reason"]
            assert await client.counted("listener_misses_total") == {("public", "unknown-listener", "http"): 1}

    @both_families
    async def test_pip_95_tls_only_listener_gives_no_plain_urls(self, family: Family) -> None:
        async with SimulatedCluster(family=family) as cluster, serving(cluster) as client:
            cluster.own(TOPIC, 1)
            answer = (await client.send(LOOKUP)).json
            assert answer["brokerUrlTls"] == "pulsar+ssl://broker-1.pulsar.example.com:6652"
            assert not any(url.startswith(("pulsar:", "http:")) for url in answer.values())

    @both_families
    async def test_pip_95_lookup_succeeds_when_gateway_terminates_tls(self, family: Family) -> None:
        async with SimulatedCluster(family=family) as cluster, serving(cluster) as client:
            walk = await client.walk(INGRESS + LOOKUP)
            assert walk.reply.json["httpUrlTls"] == external(0)
            assert await client.counted("leaks_total") == {}

    @both_families
    async def test_pip_95_each_ingress_gets_its_own_listener_from_any_broker(self, family: Family) -> None:
        async with SimulatedCluster(family=family, listeners=LISTENERS) as cluster:
            cluster.own(Topic.parse(TOPIC), 2)
            async with serving(cluster, pool=(0, 1, 2), **both(cluster)) as client:
                for _ in range(3):
                    for host, expected in ((HOST, in_full(2)), ("partner.example", in_partner(2))):
                        answer = (await client.send(LOOKUP, host=host)).json
                        assert {key: url for key, url in answer.items() if key != "brokerId"} == expected
                assert await client.counted("listener_misses_total") == {}


class TestPip338:
    """PIP-338: a default lookup listener, and the same listener for all protocols."""

    @both_families
    async def test_pip_338_case_i_default_lookup_listener_is_used_when_none_is_named(self, family: Family) -> None:
        keys: Keys = {"ingresses": [], "lookupListenerName": "external"}
        async with SimulatedCluster(family=family) as cluster, serving(cluster, **keys) as client:
            walk = await client.walk(INGRESS + LOOKUP)
            assert walk.origins == [INGRESS, external(0)]
            assert walk.reply.json == in_full(0, broker_id=family == "5.x")
            assert await client.counted("listener_hits_total") == {("", "external", "default", "http"): 2}

    @both_families
    async def test_pip_338_case_ii_listener_in_query_beats_default_lookup_listener(self, family: Family) -> None:
        async with SimulatedCluster(family=family, listeners=LISTENERS) as cluster:
            cluster.own(TOPIC, 2)
            keys: Keys = {**both(cluster), "ingresses": [], "lookupListenerName": "external"}
            async with serving(cluster, **keys) as client:
                answer = (await client.send(LOOKUP + "?listenerName=partner")).json
                assert {key: url for key, url in answer.items() if key != "brokerId"} == in_partner(2)
                assert await client.counted("listener_hits_total") == {("", "partner", "query", "http"): 1}

    @both_families
    async def test_pip_338_case_iii_answer_has_http_and_https_urls_of_named_listener(self, family: Family) -> None:
        async with SimulatedCluster(family=family, listeners=LISTENERS) as cluster:
            cluster.own(TOPIC, 2)
            async with serving(cluster, **both(cluster)) as client:
                answer = (await client.send(LOOKUP + "?listenerName=partner")).json
                assert answer["httpUrl"] == "http://b2.partner.example:8080"
                assert answer["httpUrlTls"] == "https://b2.partner.example:8443"

    async def test_pip_338_case_iv_internal_addresses_are_kept_when_no_listener_is_selected(self) -> None:
        keys: Keys = {"ingresses": [], "preferHttpClientListenerOverInternalListener": False}
        async with SimulatedCluster() as cluster, serving(cluster, **keys) as client:
            reply = await client.send(LOOKUP)
            assert reply.location == f"http://{named(0)}:8080{LOOKUP}?authoritative=false"
            cluster.own(TOPIC, 2)
            assert (await client.send(LOOKUP)).json == as_sent(2)

    @both_families
    async def test_pip_338_internal_web_addresses_are_kept_if_client_listener_not_preferred(
        self, family: Family
    ) -> None:
        keys: Keys = {"preferHttpClientListenerOverInternalListener": False}
        async with SimulatedCluster(family=family) as cluster, serving(cluster, **keys) as client:
            location = (await client.send(LOOKUP)).location
            assert location == f"http://{named(0)}:8080{LOOKUP}?authoritative=false&listenerName=external"
            cluster.own(TOPIC, 2)
            answer = (await client.send(LOOKUP)).json
            assert answer["httpUrl"] == f"http://{named(2)}:8080"
            assert "httpUrlTls" not in answer
            assert answer["brokerUrl"] == answer["brokerUrlTls"] == in_full(2)["brokerUrl"]
            assert await client.counted("redirects_total") == {("external", "lookup", "passed"): 1}
            assert await client.counted("leaks_total") == {("external", "location", "passed"): 1}
