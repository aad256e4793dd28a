"""The API: every route is described, every answer is as described, and says what is so."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from consoles import HOST, LOOKUP, Place, serving
from jsonschema import Draft202012Validator
from simulated.cluster import SimulatedCluster

from pulsar_ingress_proxy.app.sidecar import Sidecar
from pulsar_ingress_proxy.config import load_mapping
from pulsar_ingress_proxy.console import reachability
from pulsar_ingress_proxy.console.api import ROUTES
from pulsar_ingress_proxy.routing.answers import URL_KEYS


async def everything(place: Place) -> None:
    """Something of each sort."""
    await place.hit()
    await place.miss()
    await place.leak()
    await place.redirect()
    partner = {"name": "partner", "hosts": ["partner.example.net"], "listener": "partner", "expose": ["lookup"]}
    await place.reload(ingresses=[*place.keys["ingresses"], partner], redirects={"maxHops": 3})


class TestDescription:
    async def test_openapi_document_describes_exactly_the_served_routes(self, place: Place) -> None:
        described = await place.api("openapi.json")
        assert described["openapi"] == "3.1.0"
        routed = {(route.path, route.method.lower()) for route in ROUTES}
        assert {(path, method) for path, methods in described["paths"].items() for method in methods} == routed
        console = place.sidecar._console
        assert console is not None
        served = {
            (route.resource.canonical, route.method.lower())
            for route in console._runner.app.router.routes()
            if route.resource is not None and route.method != "HEAD" and route.resource.canonical.startswith("/api/")
        }
        assert served == routed

    async def test_openapi_schemas_are_valid_json_schemas(self, place: Place) -> None:
        schemas = (await place.api("openapi.json"))["components"]["schemas"]
        assert schemas
        for schema in schemas.values():
            Draft202012Validator.check_schema(schema)

    @pytest.mark.parametrize("route", [route for route in ROUTES if route.answer is not None], ids=lambda it: it.name)
    @pytest.mark.parametrize("is_busy", [False, True], ids=["nothing has happened", "all has"])
    async def test_every_answer_matches_its_openapi_schema(self, place: Place, route: Any, is_busy: bool) -> None:
        if is_busy:
            await everything(place)
        described = await place.api("openapi.json")
        operation = described["paths"][route.path][route.method.lower()]
        if route.method == "POST":
            answer = await place.what_if(url=f"https://{HOST}{LOOKUP}t", location="http://elsewhere.example.org/")
        else:
            answer = await place.api(route.path.removeprefix("/api/"))
        schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
        whole = {**schema, "components": described["components"]}
        assert [error.message for error in Draft202012Validator(whole).iter_errors(answer)] == []

    async def test_error_answers_match_the_problem_schema(self, place: Place) -> None:
        described = await place.api("openapi.json")
        schema = described["components"]["schemas"]["Problem"]
        for path in ("/api/decisions?limit=0", "/api/decisions?only=all", "/api/decisions/stream?x=x", "/api/none"):
            answer = await place.get(path)
            assert answer.status in (400, 404)
            Draft202012Validator(schema).validate(await answer.json())


class TestStatus:
    async def test_status_after_start_is_ready_at_generation_1_with_zero_counts(self, place: Place) -> None:
        status = await place.api("status")
        assert (status["ready"], status["notReady"], status["generation"]) == (True, None, 1)
        assert (status["changedBy"], status["changes"], status["reloadProblem"]) == ("start", [], None)
        assert status["source"] == "config.yaml"
        names = ("hits", "misses", "redirects", "leaks", "failures", "unread", "requests")
        assert status["counts"] == dict.fromkeys(names, 0)

    async def test_status_counts_hits_misses_redirects_leaks_and_requests(self, place: Place) -> None:
        await everything(place)
        counts = (await place.api("status"))["counts"]
        lookups = {"hits": 3, "misses": 1, "redirects": 1, "leaks": 1}
        assert counts == {**lookups, "failures": 0, "unread": 0, "requests": 4}

    async def test_status_gives_the_reason_for_not_being_ready(self, place: Place) -> None:
        place.sidecar._not_ready = "shutting down"
        status = await place.api("status")
        assert (status["ready"], status["notReady"]) == (False, "shutting down")

    async def test_status_gives_the_reason_why_a_reload_failed(self, place: Place) -> None:
        place.sidecar.history.reload_problem = "config.yaml:3: bindAddress: unknown key"
        assert (await place.api("status"))["reloadProblem"] == "config.yaml:3: bindAddress: unknown key"


class TestIngresses:
    async def test_ingresses_are_listed_with_their_counts_sockets_and_listeners(self, place: Place) -> None:
        await everything(place)
        found = await place.api("ingresses")
        public, partner = found["ingresses"]
        assert public["hosts"] == [HOST, f"*.{HOST}"]
        assert (public["listener"], public["source"], public["expose"]) == ("external", "config", None)
        assert (public["hits"], public["misses"]) == (3, 0)
        assert partner["expose"] == ["lookup"]
        assert found["sockets"] == [{"address": "127.0.0.1:0", "scheme": "http", "listener": None}]
        assert [one["name"] for one in found["listeners"] if one["internal"]] == ["internal"]


class TestBrokers:
    async def test_each_broker_address_names_its_source(self, place: Place) -> None:
        book = await place.api("brokers")
        assert len(book["brokers"]) == 3
        for number, broker in enumerate(book["brokers"]):
            assert broker["source"] == "config"
            assert {(one["source"], one["by"]) for one in broker["addresses"]} == {
                ("config", f"advertisedListeners.{number}")
            }
        assert book["conflicts"] == []
        assert book["check"] == {
            "running": False,
            "checkedAt": None,
            "reachable": 0,
            "unreachable": 0,
            "notJudged": 0,
        }

    async def test_brokers_answer_shows_sources_and_conflicts_of_discovery(self) -> None:
        async with SimulatedCluster(brokers=2) as cluster:
            line = {"broker": cluster.brokers[0].name, "listeners": f"internal:{cluster.brokers[0].web}"}
            keys = {
                "brokers": {"webServiceUrl": [cluster.brokers[0].web], "discover": "admin"},
                "advertisedListeners": [line, {**line, "broker": cluster.brokers[1].name}],
            }
            async with serving(cluster, **keys) as place:
                async with asyncio.timeout(10):
                    while not (await place.api("findings"))["conflicts"]:
                        pass
                book = await place.api("brokers")
                findings = await place.api("findings")
                generations = (await place.api("generations"))["generations"]
        addresses = book["brokers"][0]["addresses"]
        assert {(one["listener"], one["source"]) for one in addresses} == {
            ("internal", "config"),
            ("internal", "admin"),
            ("external", "admin"),
        }
        assert all(one["by"].startswith("broker pulsar-broker-0.") for one in addresses if one["source"] == "admin")
        assert book["conflicts"] == findings["conflicts"]
        assert any("not at http://pulsar-broker-0." in conflict["text"] for conflict in book["conflicts"])
        assert findings["discovers"] == ["admin"]
        assert findings["kinds"] == [{"kind": "Broker", "synced": True}]
        assert generations[0]["cause"] == "discovery"
        assert any(line.startswith("conflict: pulsar-broker-0.") for line in generations[0]["changes"])


class TestReachability:
    async def finished(self, place: Place) -> Any:
        console = place.sidecar._console
        assert console is not None
        assert console.view.reachability._round is not None
        await console.view.reachability._round
        return await place.api("brokers")

    async def test_reachability_results_are_shown_with_each_broker_address(self, place: Place) -> None:
        place.keys["advertisedListeners"][2]["listeners"] = "internal:http://127.0.0.1:1"
        await place.reload()
        assert (await place.api("reachability"))["running"] is True
        book = await self.finished(place)
        first = {one["url"]: one["reach"] for one in book["brokers"][0]["addresses"]}
        web = place.cluster.brokers[0].web
        assert first[web] == [
            {
                "broker": place.cluster.brokers[0].name,
                "url": web,
                "reachable": True,
                "judged": True,
                "answers": "200",
                "problem": None,
            }
        ]
        (closed,) = book["brokers"][2]["addresses"][0]["reach"]
        assert (closed["reachable"], closed["judged"]) == (False, True)
        assert "port 1 does not open" in closed["problem"]
        assert [one["url"] for one in book["pool"]] == [place.cluster.brokers[1].web]
        assert book["check"]["checkedAt"] is not None

    async def test_address_for_clients_that_the_sidecar_cannot_connect_to_is_not_judged(self, place: Place) -> None:
        one, other = (broker.web for broker in place.cluster.brokers[:2])
        lines = [{"broker": "b", "listeners": f"internal:{one}, external:http://127.0.0.1:1, partner:{other}"}]
        await place.reload(advertisedListeners=lines)
        await place.api("reachability")
        book = await self.finished(place)
        found = {one["listener"]: one["reach"][0] for one in book["brokers"][0]["addresses"]}
        shown = {listener: (reach["reachable"], reach["judged"]) for listener, reach in found.items()}
        assert shown == {"internal": (True, True), "external": (False, False), "partner": (True, True)}
        assert (book["check"]["unreachable"], book["check"]["notJudged"]) == (0, 1)

    async def test_reachability_of_the_brokers_of_a_template_is_shown_under_it(self) -> None:
        async with SimulatedCluster(brokers=2, advertise_loopback=True) as cluster:
            line = {"broker": "127.0.0.1:{n}", "listeners": "internal:http://127.0.0.1:{n}"}
            async with serving(cluster, advertisedListeners=[line]) as place:
                await place.api("reachability")
                book = await self.finished(place)
        (entry,) = book["brokers"]
        assert entry["template"]
        assert {one["url"] for one in entry["addresses"][0]["reach"]} == {broker.web for broker in cluster.brokers}

    async def test_only_one_reachability_round_runs_at_a_time_and_not_too_often(
        self, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rounds: list[asyncio.Event] = []

        async def examine(*_: object) -> None:
            rounds.append(asyncio.Event())
            await rounds[-1].wait()

        monkeypatch.setattr(reachability, "examine", examine)
        for _ in range(5):
            assert (await place.api("reachability"))["running"]
        assert len(rounds) == 1
        rounds[0].set()
        await self.finished(place)
        assert not (await place.api("reachability"))["running"]
        assert len(rounds) == 1
        monkeypatch.setattr(reachability, "BETWEEN", 0)
        assert (await place.api("reachability"))["running"]

    async def test_reachability_round_is_ended_after_its_time_limit(
        self, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def examine(*_: object) -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr(reachability, "examine", examine)
        monkeypatch.setattr(reachability, "LONGEST", 0.01)
        await place.api("reachability")
        assert (await self.finished(place))["check"]["checkedAt"] is not None

    async def test_head_request_does_not_start_a_reachability_round(self, place: Place) -> None:
        async with place.session.head("/api/reachability") as answer:
            assert answer.status == 200
        assert not (await place.api("brokers"))["check"]["running"]


class TestGenerations:
    async def test_generations_list_what_a_reload_changed(self, place: Place) -> None:
        await everything(place)
        newest, first = (await place.api("generations"))["generations"]
        assert (first["generation"], first["cause"], first["changes"]) == (1, "start", [])
        assert (newest["generation"], newest["cause"]) == (2, "reload")
        assert "ingress partner: new, partner.example.net for 'partner'" in newest["changes"]
        assert "redirects.maxHops: 5 is now 3" in newest["changes"]

    async def test_only_the_last_50_generations_are_kept(self, place: Place) -> None:
        for hops in range(60):
            await place.reload(redirects={"maxHops": hops + 1})
        kept = (await place.api("generations"))["generations"]
        assert [one["generation"] for one in kept] == list(range(61, 11, -1))


class TestFindings:
    async def test_unknown_lookup_listener_name_is_shown_as_a_warning(self, place: Place) -> None:
        assert (await place.api("findings"))["warnings"] == []
        await place.reload(lookupListenerName="nobodys")
        (warning,) = (await place.api("findings"))["warnings"]
        assert warning.startswith("lookupListenerName: no line of advertisedListeners has listener 'nobodys'")


class TestDecisions:
    async def test_decisions_are_listed_newest_first(self, place: Place) -> None:
        for topic in ("a", "b", "c"):
            await place.hit(topic)
        decisions = (await place.api("decisions"))["decisions"]
        assert [one["topic"] for one in decisions] == [f"persistent://public/default/{name}" for name in "cba"]
        assert {one["listener"] for one in decisions} == {"external"}

    @pytest.mark.parametrize(("only", "count"), [("", 4), ("miss", 1), ("leak", 1), ("redirect", 1), ("miss,leak", 2)])
    async def test_only_parameter_filters_the_decisions(self, place: Place, only: str, count: int) -> None:
        await everything(place)
        decisions = (await place.api(f"decisions?only={only}"))["decisions"]
        assert len(decisions) == count
        for one in decisions:
            found = {"miss": one["missReason"], "leak": one["leak"], "redirect": one["redirectAction"]}
            assert not only or any(found[name] for name in only.split(","))

    async def test_decisions_since_a_cursor_are_limited_to_the_newest(self, place: Place) -> None:
        await place.hit("a")
        cursor = (await place.api("decisions"))["cursor"]
        assert (await place.api(f"decisions?since={cursor}"))["decisions"] == []
        await place.hit("b")
        await place.hit("c")
        newer = await place.api(f"decisions?since={cursor}&limit=1")
        assert [one["topic"] for one in newer["decisions"]] == ["persistent://public/default/c"]
        assert newer["more"] == 1
        assert newer["decisions"][0]["cursor"] == newer["cursor"]

    @pytest.mark.parametrize("cursor", ["", "x", "ffffffff-1", "-", "0", "9" * 300])
    async def test_unknown_cursor_returns_all_decisions(self, place: Place, cursor: str) -> None:
        await place.hit()
        assert len((await place.api(f"decisions?since={cursor}"))["decisions"]) == 1

    async def test_fast_path_hits_are_listed_as_decisions(self, place: Place) -> None:
        place.cluster.own("persistent://public/default/orders", 0)
        for _ in range(6):
            await place.hit("orders")
        decisions = (await place.api("decisions"))["decisions"]
        assert len(decisions) == 6
        assert {(one["hit"], one["topic"], one["status"]) for one in decisions} == {
            (True, "persistent://public/default/orders", 200)
        }

    async def test_fast_path_misses_are_listed_as_decisions(self, place: Place) -> None:
        place.cluster.own("persistent://public/default/orders", 0)
        for _ in range(6):
            await place.miss()
        decisions = (await place.api("decisions?only=miss"))["decisions"]
        assert [one["missReason"] for one in decisions] == ["no-rule"] * 6

    async def test_a_miss_is_still_listed_after_500_hits(self, place: Place) -> None:
        await place.miss()
        for _ in range(500):
            await place.hit()
        assert len((await place.api("decisions?limit=500"))["decisions"]) == 500
        assert len((await place.api("decisions?only=miss"))["decisions"]) == 1

    async def test_tokens_in_redirects_are_redacted(self, place: Place) -> None:
        await place.ask("/lookup/v2/topic/persistent/new/bundle/t?token=tell-nobody")
        answer = await place.get("/api/decisions")
        assert "tell-nobody" not in await answer.text()


class TestFigures:
    async def test_each_figure_counts_only_since_the_previous_sample(self, place: Place) -> None:
        console = place.sidecar._console
        assert console is not None
        await everything(place)
        console.view.figures_kept.take()
        await place.hit()
        console.view.figures_kept.take()
        first, second = (await place.api("figures"))["figures"]
        assert (first["hits"], first["misses"], first["redirects"], first["leaks"]) == (3, 1, 1, 1)
        assert (second["hits"], second["misses"], second["requests"]) == (1, 0, 1)
        assert 0 < second["p50Ms"] <= second["p99Ms"]

    async def test_figure_without_lookups_has_no_latency(self, place: Place) -> None:
        console = place.sidecar._console
        assert console is not None
        console.view.figures_kept.take()
        (figure,) = (await place.api("figures"))["figures"]
        assert (figure["hits"], figure["p50Ms"], figure["p99Ms"]) == (0, None, None)


class TestWhatIf:
    async def test_what_if_shows_the_outcome_of_each_rule_for_a_hit(self, place: Place) -> None:
        found = await place.what_if(url=f"https://{HOST}{LOOKUP}orders")
        assert (found["hit"], found["listener"], found["rule"], found["ingress"]) == (
            True,
            "external",
            "ingress",
            "public",
        )
        assert [(step["rule"], step["outcome"]) for step in found["steps"]] == [
            ("query", "passed-over"),
            ("header", "passed-over"),
            ("bind", "passed-over"),
            ("ingress", "decided"),
            ("default", "not-reached"),
        ]
        assert found["upstream"] == place.cluster.brokers[1].web

    async def test_what_if_predicts_the_redirect_that_the_sidecar_makes(self, place: Place) -> None:
        """The same request for real: the broker's redirect becomes what was said it would."""
        target = f"{LOOKUP}unowned"
        said = await place.what_if(
            url=f"https://{HOST}{target}", location=f"http://{place.cluster.brokers[0].name}:8080{target}"
        )
        place.cluster.metadata.owners.clear()
        await place.ask(target)
        (decision, *_) = (await place.api("decisions?only=redirect"))["decisions"]
        assert decision["redirectAction"] == said["location"]["action"] == "rewritten"
        assert decision["redirectTo"].partition("?")[0] == said["location"]["to"].partition("?")[0]

    async def test_what_if_uses_forwarded_host_only_from_a_trusted_proxy(self, place: Place) -> None:
        headers = [{"name": "X-Forwarded-Host", "value": HOST}]
        question = {"url": f"http://elsewhere.example.org{LOOKUP}t", "headers": headers}
        assert (await place.what_if(**question))["listener"] == "external"
        found = await place.what_if(**question, trusted=False)
        assert (found["listener"], found["reason"]) == (None, "no-rule")

    async def test_what_if_shows_a_refusal_without_an_upstream(self, place: Place) -> None:
        found = await place.what_if(url=f"https://{HOST}{LOOKUP}t?listenerName=internal")
        assert found["refusal"]["status"] == 403
        assert found["steps"][0]["outcome"] == "refused"
        assert found["upstream"] is None
        assert found["suggestion"].endswith("clientListenerName: ignore\n")

    async def test_what_if_is_silent_on_redirect_and_body_of_a_refused_request(self, place: Place) -> None:
        url = f"https://{HOST}{LOOKUP}t?listenerName=internal"
        found = await place.what_if(url=url, location=f"http://{place.cluster.brokers[0].name}:8080/", body="{}")
        assert (found["location"], found["body"]) == (None, None)

    async def test_what_if_predicts_the_body_that_the_sidecar_answers(self, place: Place) -> None:
        """A broker's own answer: what was said of it is what a client gets."""
        place.cluster.own("persistent://public/default/orders", 1)
        async with place.session.get(f"{place.cluster.brokers[1].web}{LOOKUP}orders") as answer:
            sent = await answer.text()
        url = f"http://127.0.0.1:{place.sidecar.http_servers[0].port}{LOOKUP}orders"
        async with place.session.get(url, headers={"Host": HOST, "X-Forwarded-Proto": "https"}) as answer:
            got = await answer.json()
        body = (await place.what_if(url=f"https://{HOST}{LOOKUP}orders", body=sent))["body"]
        assert {key["key"]: key["to"] for key in body["keys"]} == {key: got[key] for key in URL_KEYS if got.get(key)}
        assert (body["leak"], {key["leak"] for key in body["keys"]}) == (None, {False})

    async def test_what_if_shows_no_rules_for_an_invalid_request_head(self, place: Place) -> None:
        found = await place.what_if(url=f"https://{HOST}/lookup/v2/../admin")
        assert (found["refusal"]["code"], found["steps"]) == ("bad-path", [])
        coded = [{"name": "Transfer-Encoding", "value": "gzip, chunked"}]
        found = await place.what_if(url=f"https://{HOST}{LOOKUP}t", headers=coded)
        assert (found["refusal"]["code"], found["steps"]) == ("bad-transfer-encoding", [])

    @pytest.mark.parametrize(
        ("question", "words"),
        [
            ({}, "url"),
            ({"url": "pulsar.example.com"}, "is not a URL"),
            ({"url": "http://[broken"}, "is not a URL"),
            ({"url": "http://a/", "bind": "1.2.3.4:5"}, "no http socket is bound to"),
            ({"url": "http://a/", "headers": [{"name": "a b", "value": ""}]}, "headers.0.name"),
            ({"url": "http://a/", "headers": [{"name": "a", "value": "x\r\ny"}]}, "headers.0.value"),
            ({"url": "http://a/", "headers": [{"name": "X-Forwarded-Host", "value": "höst\u2603"}]}, "encode it"),
            ({"url": "http://a/", "method": "G T"}, "method"),
            ({"url": "http://a/", "body": "brokerUrl"}, "the body is not JSON"),
            ({"url": "http://a/", "body": "[]"}, "the body is not a JSON object"),
            ({"url": "http://a/", "more": 1}, "more"),
            ({"url": "x" * 9000}, "url"),
            ({"url": "http://a/", "headers": [{"name": "a", "value": ""}] * 101}, "headers"),
        ],
    )
    async def test_invalid_what_if_question_is_refused_with_400_and_a_reason(
        self, place: Place, question: dict[str, Any], words: str
    ) -> None:
        async with place.session.post("/api/what-if", json=question) as answer:
            assert answer.status == 400
            reason = (await answer.json())["reason"]
        assert reason.startswith("bad-question: ")
        assert words in reason

    async def test_what_if_contacts_no_broker_and_is_not_counted_or_recorded(self, place: Place) -> None:
        await place.what_if(url=f"https://{HOST}{LOOKUP}t", location="http://elsewhere.example.org/")
        assert all(broker.requests == [] for broker in place.cluster.brokers)
        assert (await place.api("status"))["counts"]["requests"] == 0
        assert (await place.api("decisions"))["decisions"] == []


async def test_console_without_address_is_not_started_and_records_no_decisions() -> None:
    async with SimulatedCluster(brokers=2) as cluster, serving(cluster, console={"address": None}) as place:
        assert place.sidecar.console_port is None
        assert place.sidecar._context.recorder._recent is None
        await place.hit()


async def test_sidecar_serves_clients_when_the_console_port_is_taken(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    address = f"127.0.0.1:{place.sidecar.console_port}"
    other = Sidecar(load_mapping({**place.keys, "console": {"address": address}}))
    await other.start()
    try:
        assert other.console_port is None
        assert f"console.address {address}: cannot be bound" in caplog.text
        assert await Place(place.cluster, other, place.session, {}).ask("/status.html") == 200
    finally:
        await other.stop()
