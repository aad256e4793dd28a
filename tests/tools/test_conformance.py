"""`conformance` through a real sidecar on real sockets: what holds, and each way in which it does not."""

import pytest
import trustme
from aiohttp.web import Request, StreamResponse
from client_place import HOST, Place, answering, failure, http, name_of, server_context, states, texts
from simulated.cluster import Answer, Received, SimulatedBroker, always, redirects, says

from pulsar_ingress_proxy.tools.conformance import checks
from pulsar_ingress_proxy.tools.conformance.checks import Result
from pulsar_ingress_proxy.tools.conformance.expectations import TOPIC

WEB = ("connect", "lookup", "redirects", "addresses", "brokers", "admin")


class TestOverHttp:
    @pytest.mark.parametrize("scheme", ["http", "https"])
    async def test_all_checks_hold_with_redirects_from_broker_to_broker(self, place: Place, scheme: str) -> None:
        async with place.sidecar(brokers={"webServiceUrl": [place.cluster.brokers[1].web]}):
            results = await place.conform(place.url(scheme))
        assert states(results) == dict.fromkeys(WEB, "held")
        said = texts(results)
        assert said["redirects"].startswith(f"to {place.url(scheme, name_of(0))}"), "the leader"
        owner = place.cluster.owner(TOPIC)
        assert owner is not None
        assert place.binary.url(owner, "pulsar+ssl") in said["addresses"]
        assert place.binary.url(owner, "pulsar+ssl") in said["brokers"]

    async def test_topic_with_an_owner_is_not_redirected(self, place: Place) -> None:
        topic = "persistent://public/orders/eu?west"
        place.cluster.own(topic, 2)
        async with place.sidecar():
            results = await place.conform(place.url("https"), topic=topic)
        assert texts(results)["redirects"] == "no broker redirects this lookup"

    async def test_several_urls_have_their_results_in_order(self, place: Place) -> None:
        place.binary.answers = [lambda _: place.answer(1)]
        async with place.sidecar():
            results = await place.conform(place.url("pulsar"), place.url("https"))
        assert [str(result.ingress.url) for result in results] == [place.url("pulsar")] * 5 + [place.url("https")] * 6
        assert {result.verdict.state for result in results} == {"held"}

    async def test_name_that_does_not_resolve_is_dns_and_nothing_else_is_tried(self, place: Place) -> None:
        place.names.known.remove(HOST)
        async with place.sidecar():
            results = await place.conform(place.url("https"))
        assert failure(results) == ("connect", "dns", f"{HOST} does not resolve: Name or service not known")
        assert states(results) == {"connect": "failed"} | dict.fromkeys(WEB[1:], "skipped")

    async def test_closed_port_is_route(self, place: Place) -> None:
        check, cause, text = failure(await place.conform(place.url("https")))
        assert (check, cause) == ("connect", "route")
        assert f"port {place.ports['https']} does not open" in text

    @pytest.mark.parametrize("is_known", [True, False], ids=["another name", "an unknown CA"])
    async def test_wrong_certificate_is_certificate(self, place: Place, is_known: bool) -> None:
        authority, host = (place.certificates, "other.example.com") if is_known else (trustme.CA(), HOST)
        async with answering(place.ports["https"], http(200), server_context(authority.issue_cert(host))):
            check, cause, text = failure(await place.conform(place.url("https")))
        assert (check, cause) == ("connect", "certificate")
        assert f"not valid for {HOST}" in text

    async def test_plain_http_at_an_https_url_is_certificate(self, place: Place) -> None:
        async with answering(place.ports["https"], http(400)):
            check, cause, text = failure(await place.conform(place.url("https")))
        assert (check, cause) == ("connect", "certificate")
        assert "no TLS there" in text

    @pytest.mark.parametrize(
        ("answer", "cause"),
        [
            pytest.param(http(404), "route", id="no route"),
            pytest.param(http(503, b"no healthy upstream"), "route", id="no sidecar"),
            pytest.param(http(504, b"upstream request timeout"), "broker", id="too late"),
            pytest.param(b"SSH-2.0-OpenSSH_9.9\r\n", "route", id="another protocol"),
            pytest.param(b"", "route", id="no answer"),
        ],
    )
    async def test_answer_of_the_gateway_itself_is_route_unless_it_waited(
        self, place: Place, answer: bytes, cause: str
    ) -> None:
        async with answering(place.ports["http"], answer):
            results = await place.conform(place.url("http"))
        found = {result.check: result.verdict.cause for result in results}
        assert found == {**dict.fromkeys(WEB), "lookup": cause, "admin": cause}

    async def test_route_past_the_sidecar_is_route(self, place: Place) -> None:
        """It leads to brokers, which redirect to their internal addresses, or answer with them."""
        port = int(place.cluster.brokers[1].web.rpartition(":")[2])
        check, cause, text = failure(await place.conform(f"http://{HOST}:{port}"))
        assert (check, cause) == ("redirects", "route")
        assert "did not come through the sidecar" in text
        place.cluster.own(TOPIC, 1)
        check, cause, text = failure(await place.conform(f"http://{HOST}:{port}"))
        assert (check, cause) == ("addresses", "route")

    async def test_listener_that_brokers_lack_is_listener(self, place: Place) -> None:
        for broker in place.cluster.brokers:
            del broker.listeners["external"]
        async with place.sidecar():
            check, cause, text = failure(await place.conform(place.url("https")))
        assert (check, cause) == ("lookup", "listener")
        assert "broker-lacks-listener" in text

    async def test_redirect_to_an_internal_address_is_listener_and_is_not_followed(self, place: Place) -> None:
        async with place.sidecar(
            redirects={"lookup": "pass"}, brokers={"webServiceUrl": [place.cluster.brokers[1].web]}
        ):
            check, cause, text = failure(await place.conform(place.url("https"), token="secret"))
        assert (check, cause) == ("redirects", "listener")
        assert f"a redirect to http://{place.cluster.brokers[0].name}:8080" in text
        assert place.url("https", name_of(0)) in text, "what it should be"

    async def test_answer_with_an_address_that_the_config_lacks_is_listener(self, place: Place) -> None:
        place.cluster.own(TOPIC, 2)
        async with place.sidecar(advertisedListeners=place.config["advertisedListeners"][:2]):
            check, cause, text = failure(
                await place.conform(place.url("https"), advertisedListeners=place.config["advertisedListeners"][:2])
            )
        assert (check, cause) == ("addresses", "listener")
        assert "advertisedListeners does not have" in text

    async def test_broker_without_an_address_on_the_listener_is_listener(self, place: Place) -> None:
        place.cluster.own(TOPIC, 2)
        lines = place.config["advertisedListeners"]
        no_web = ",".join(url for url in lines[2]["listeners"].split(",") if not url.startswith("external:http"))
        book = [*lines[:2], {**lines[2], "listeners": no_web}]
        async with place.sidecar(advertisedListeners=book):
            check, cause, text = failure(await place.conform(place.url("https"), advertisedListeners=book))
        assert (check, cause) == ("addresses", "listener")
        assert f"no such address of {place.cluster.brokers[2].name} on 'external'" in text

    async def test_https_client_without_a_tls_address_is_listener(self, place: Place) -> None:
        place.cluster.own(TOPIC, 2)
        book = [
            {**line, "listeners": ",".join(url for url in line["listeners"].split(",") if "pulsar+ssl" not in url)}
            for line in place.config["advertisedListeners"]
        ]
        async with place.sidecar(advertisedListeners=book):
            check, cause, text = failure(await place.conform(place.url("https"), advertisedListeners=book))
            plain = await place.conform(place.url("http"), advertisedListeners=book)
        assert (check, cause) == ("addresses", "listener")
        assert "no brokerUrlTls" in text
        assert set(states(plain).values()) == {"held"}

    async def test_shadow_mode_is_named_as_the_reason(self, place: Place) -> None:
        place.cluster.own(TOPIC, 2)
        async with place.sidecar(shadow=True):
            check, cause, text = failure(await place.conform(place.url("https"), shadow=True))
        assert (check, cause) == ("addresses", "sidecar")
        assert "shadow is true" in text

    async def test_no_broker_behind_the_sidecar_is_broker(self, place: Place) -> None:
        for broker in place.cluster.brokers:
            await broker.stop()
        async with place.sidecar():
            results = await place.conform(place.url("https"))
        found = {result.check: result.verdict for result in results}
        assert (found["lookup"].cause, found["admin"].cause) == ("broker", "broker")
        assert "broker-unreachable" in found["lookup"].text

    async def test_owner_that_does_not_answer_is_broker(self, place: Place) -> None:
        """Its port is open, as a gateway's is, and nobody answers there."""
        place.cluster.own(TOPIC, 2)
        place.binary.greets = False
        async with place.sidecar():
            check, cause, text = failure(await place.conform(place.url("http")))
        assert (check, cause) == ("brokers", "broker")
        assert place.binary.url(2) in text

    async def test_broker_whose_name_does_not_resolve_is_dns(self, place: Place) -> None:
        place.cluster.own(TOPIC, 2)
        place.names.known.remove(name_of(2))
        async with place.sidecar():
            check, cause, text = failure(await place.conform(place.url("https")))
        assert (check, cause) == ("brokers", "dns")
        assert text.startswith(f"{name_of(2)} does not resolve")

    async def test_redirects_in_a_circle_are_broker(self, place: Place) -> None:
        first, second = place.cluster.brokers[:2]
        first.script.append(always(redirects(f"http://{second.name}:8080")))
        second.script.append(always(redirects(f"http://{first.name}:8080")))
        async with place.sidecar(brokers={"webServiceUrl": [first.web]}):
            results = await place.conform(place.url("http"))
        found = {result.check: result.verdict for result in results}
        assert (found["redirects"].cause, found["admin"].cause) == ("broker", "broker")
        assert "more than 20 redirects" in found["redirects"].text

    async def test_redirect_to_a_peer_cluster_holds_and_is_not_followed(self, place: Place) -> None:
        peers = {"peers": ["pulsar.example.org"]}
        place.cluster.brokers[0].script.append(always(redirects("https://pulsar.example.org")))
        async with place.sidecar(brokers={"webServiceUrl": [place.cluster.brokers[0].web]}, redirects=peers):
            results = await place.conform(place.url("https"), redirects=peers)
        assert states(results) == dict.fromkeys(WEB, "held") | dict.fromkeys(("addresses", "brokers"), "skipped")

    async def test_broker_without_the_namespace_is_broker_and_the_topic_can_be_named(self, place: Place) -> None:
        place.cluster.metadata.missing_namespaces.add("public/default")
        async with place.sidecar():
            check, cause, text = failure(await place.conform(place.url("https")))
            other = await place.conform(place.url("https"), topic="persistent://public/other/orders")
        assert (check, cause) == ("lookup", "broker")
        assert text.endswith("404: Namespace not found (--topic names another topic)")
        assert set(states(other).values()) == {"held"}

    async def test_topic_that_does_not_exist_yet_has_no_partitions_and_holds(self, place: Place) -> None:
        place.cluster.own(TOPIC, 0)

        async def know_no_partitions(broker: SimulatedBroker, request: Request, received: Received) -> StreamResponse:
            if received.path.endswith("/partitions"):
                return broker.respond(Answer(404, b'{"reason": "Topic not found"}'), received)
            return await broker.answer(request, received)

        for broker in place.cluster.brokers:
            broker.script.append(always(know_no_partitions))
        async with place.sidecar():
            results = await place.conform(place.url("https"))
        assert states(results) == dict.fromkeys(WEB, "held")
        assert texts(results)["admin"].startswith("404 from a broker")

    async def test_answer_without_a_broker_is_not_one(self, place: Place) -> None:
        place.cluster.brokers[0].script.append(always(says(Answer(200, b"{}"))))
        async with place.sidecar(brokers={"webServiceUrl": [place.cluster.brokers[0].web]}):
            check, cause, text = failure(await place.conform(place.url("https")))
        assert (check, cause) == ("addresses", "broker")
        assert text.endswith("answers 200, and names no broker")


class TestCredentials:
    async def test_401_holds_without_credentials_and_what_needs_them_is_skipped(self, place: Place) -> None:
        place.cluster.token = "secret"
        async with place.sidecar():
            results = await place.conform(place.url("https"))
        assert states(results) == {
            "connect": "held", "lookup": "held", "redirects": "skipped", "addresses": "skipped", "brokers": "skipped",
            "admin": "held",
        }  # fmt: skip
        assert texts(results)["lookup"] == "reached, not allowed: 401"

    async def test_right_token_goes_all_the_way_to_the_listener(self, place: Place) -> None:
        place.cluster.token = "secret"
        async with place.sidecar(brokers={"webServiceUrl": [place.cluster.brokers[1].web]}):
            results = await place.conform(place.url("https"), token="secret")
        assert states(results) == dict.fromkeys(WEB, "held")

    async def test_wrong_token_is_credentials(self, place: Place) -> None:
        place.cluster.token = "secret"
        async with place.sidecar():
            results = await place.conform(place.url("https"), token="wrong")
        found = {result.check: result.verdict.cause for result in results}
        assert (found["lookup"], found["admin"]) == ("credentials", "credentials")
        assert all("wrong" not in result.verdict.text for result in results)

    async def test_ingress_that_does_not_expose_admin_calls_holds_as_configured(self, place: Place) -> None:
        ingresses = [{**place.config["ingresses"][0], "expose": ["lookup"]}]
        async with place.sidecar(ingresses=ingresses):
            results = await place.conform(place.url("https"), token="any", ingresses=ingresses)
            others = await place.conform(place.url("https"))
        assert states(results) == dict.fromkeys(WEB, "held")
        assert "not-exposed" in results[-1].verdict.text
        found = {result.check: result.verdict.cause for result in others}
        assert found["admin"] == "sidecar", "by this config it should be exposed"


class TestWaiting:
    async def test_checks_are_made_again_until_they_hold(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(checks, "_BETWEEN", 0)
        place.names.known.remove(HOST)
        heard: list[Result] = []

        def tell(result: Result) -> None:
            heard.append(result)
            if len(heard) == 2 * len(WEB):
                place.names.known.add(HOST)

        async with place.sidecar():
            results = await place.conform(place.url("https"), wait=60, tell=tell)
        assert states(results) == dict.fromkeys(WEB, "held")
        assert len(heard) == 3 * len(WEB)

    async def test_last_round_is_reported_when_the_time_is_over(self, place: Place) -> None:
        heard: list[Result] = []
        results = await place.conform(place.url("https"), wait=0.2, tell=heard.append)
        assert failure(results)[1] == "route"
        assert results == heard[-len(WEB) :]
