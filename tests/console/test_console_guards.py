"""Who is not answered, what nobody is told, and how much anyone can ask."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from typing import Any

import pytest
from consoles import HOST, LOOKUP, Place, serving
from simulated.cluster import SimulatedCluster

from pulsar_ingress_proxy.console import server, stream
from pulsar_ingress_proxy.console.api import ROUTES
from pulsar_ingress_proxy.console.guards import HEADERS

SECRET = "c2VjcmV0LXRva2Vu"


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:9091", "localhost", "localhost:80", "LOCALHOST:9091", "[::1]:9091", "10.1.2.3"]
)
async def test_localhost_and_ip_address_hosts_are_answered(place: Place, host: str) -> None:
    assert (await place.get("/api/status", Host=host)).status == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:9091", "127.0.0.1.evil.example", "localhost.evil.example", "127.1", "", "a b",
     "localhost@evil.example", "evil.example#localhost", "xn--localhost", "0x7f.1", "[::1", "127.0.0.1:99999"],
)  # fmt: skip
async def test_hosts_other_than_localhost_or_an_ip_address_are_refused_with_403(place: Place, host: str) -> None:
    for path in ("/", "/main.js", "/api/status", "/api/what-if"):
        answer = await place.get(path, Host=host)
        assert answer.status == 403
        assert (await answer.json())["reason"].startswith("host-not-allowed: ")


async def test_console_answers_to_the_host_name_it_is_bound_to() -> None:
    async with SimulatedCluster(brokers=2) as cluster, serving(cluster, console={"address": "localhost:0"}) as place:
        url = f"http://localhost:{place.sidecar.console_port}/api/status"
        async with place.session.get(url) as answer:
            assert answer.status == 200


async def raw(place: Place, request: bytes) -> bytes:
    """An answer to bytes that no client library would send."""
    reader, writer = await asyncio.open_connection("127.0.0.1", place.sidecar.console_port)
    writer.write(request)
    try:
        return await asyncio.wait_for(reader.read(), 10)
    finally:
        writer.close()


@pytest.mark.parametrize(
    "head",
    [
        b"GET /api/status HTTP/1.0\r\n\r\n",
        b"GET /api/status HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
        b"GET http://localhost/api/status HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
    ],
    ids=["no Host", "two Hosts", "another in the target"],
)
async def test_missing_duplicate_or_contradictory_host_is_refused(place: Place, head: bytes) -> None:
    answer = await raw(place, head)
    assert answer.split(b" ")[1] in (b"400", b"403")
    assert b"generation" not in answer


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:3000"},
        {"Origin": "http://127.0.0.1"},
        {"Origin": ""},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"},
        {"Sec-Fetch-Site": "nonsense"},
    ],
    ids=str,
)
async def test_every_api_route_refuses_cross_site_requests(place: Place, headers: dict[str, str]) -> None:
    for route in ROUTES:
        question = {"url": "http://a/"} if route.question else None
        async with place.session.request(route.method, route.path, headers=headers, json=question) as answer:
            assert answer.status == 403
            assert (await answer.json())["reason"].startswith("cross-site: ")
            assert "Access-Control-Allow-Origin" not in answer.headers


async def test_same_origin_request_is_answered(place: Place) -> None:
    origin = f"http://127.0.0.1:{place.sidecar.console_port}"
    headers = {"Origin": origin, "Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}
    assert (await place.get("/api/status", **headers)).status == 200


async def test_cross_site_link_may_open_the_page_but_not_frame_it_or_load_its_files(place: Place) -> None:
    followed = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert (await place.get("/", **followed)).status == 200
    assert (await place.get("/", **{**followed, "Sec-Fetch-Dest": "iframe"})).status == 403
    assert (await place.get("/main.js", **followed)).status == 403


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND"])
async def test_methods_other_than_get_head_and_post_are_refused_with_405(place: Place, method: str) -> None:
    for path in ("/", "/api/status", "/api/what-if", "/none"):
        async with place.session.request(method, path) as answer:
            assert answer.status == 405
            assert answer.headers["Allow"] == "GET, HEAD"


async def test_only_what_if_accepts_post_and_it_refuses_get(place: Place) -> None:
    for path in ("/", "/main.js", *(route.path for route in ROUTES if route.method == "GET")):
        async with place.session.post(path, json={}) as answer:
            assert answer.status == 405
    async with place.session.get("/api/what-if") as answer:
        assert answer.status == 405


async def test_every_answer_has_the_security_headers(place: Place) -> None:
    for path in (
        "/",
        "/main.js",
        "/console.css",
        "/icon.svg",
        "/api/status",
        "/api/openapi.json",
        "/none",
        "/api/what-if",
    ):
        answer = await place.get(path)
        assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
        assert "Server" not in answer.headers
    assert "unsafe" not in HEADERS["Content-Security-Policy"]
    assert HEADERS["Content-Security-Policy"].startswith("default-src 'none'")


async def test_decision_stream_has_the_security_headers(place: Place) -> None:
    async with place.session.get("/api/decisions/stream") as answer:
        assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS


async def all_answers(place: Place) -> list[Any]:
    paths = [route.path for route in ROUTES if route.answer is not None and route.method == "GET"]
    return [await place.api(path.removeprefix("/api/")) for path in paths]


class TestSecrets:
    async def test_secrets_in_a_what_if_question_are_not_echoed_or_logged(
        self, place: Place, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        headers = [
            {"name": "Authorization", "value": f"Bearer {SECRET}"},
            {"name": "Cookie", "value": f"session={SECRET}"},
        ]
        answers = [
            await place.what_if(
                url=f"https://{HOST}{LOOKUP}t?token={SECRET}",
                headers=headers,
                location=f"http://{place.cluster.brokers[0].name}:8080/x?token={SECRET}",
            )
        ]
        answers += await all_answers(place)
        assert SECRET not in str(answers)
        assert SECRET not in caplog.text

    @pytest.mark.parametrize(
        "question",
        [
            {"url": SECRET},
            {"url": "http://a/", "headers": [{"name": "Authorization", "value": f"{SECRET}\n"}]},
            {"url": "http://a/", "headers": [{"name": SECRET + " :", "value": ""}]},
            {"url": "http://a/", "headers": SECRET},
        ],
        ids=["no URL", "a broken value", "a broken name", "no list"],
    )
    async def test_header_secrets_in_an_invalid_what_if_question_are_not_echoed_or_logged(
        self, place: Place, question: dict[str, Any], caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        async with place.session.post("/api/what-if", json=question) as answer:
            assert answer.status == 400
            said = await answer.text()
        assert SECRET not in caplog.text
        assert SECRET not in said or question == {"url": SECRET}

    async def test_client_authorization_and_cookies_are_in_no_console_answer(self, place: Place) -> None:
        await place.ask(LOOKUP + "t", Authorization=f"Bearer {SECRET}", Cookie=SECRET)
        assert SECRET not in str(await all_answers(place))


class TestBounds:
    async def post(self, place: Place, body: bytes, content_type: str = "application/json") -> tuple[int, str]:
        async with place.session.post("/api/what-if", data=body, headers={"Content-Type": content_type}) as answer:
            return answer.status, (await answer.json())["reason"].partition(":")[0]

    async def test_oversized_what_if_body_is_refused_with_413(self, place: Place) -> None:
        assert await self.post(place, b" " * (server.BODY_BYTES + 1)) == (413, "content-too-large")

    @pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
    async def test_what_if_with_a_form_content_type_is_refused_with_415(self, place: Place, kind: str) -> None:
        assert await self.post(place, b'{"url": "http://a/"}', kind) == (415, "not-json")

    @pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b'{"url": "http://a/\\ud800"}', b"[" * 10_000])
    async def test_malformed_what_if_body_is_refused_with_400(self, place: Place, body: bytes) -> None:
        assert await self.post(place, body) == (400, "bad-question")

    async def test_incomplete_what_if_body_is_refused_with_408_after_the_timeout(
        self, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(server, "BODY_SECONDS", 0.05)
        head = b"POST /api/what-if HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", place.sidecar.console_port)
        writer.write(head + b"Content-Length: 100\r\n\r\n{")
        assert b"408" in await reader.readline()
        writer.close()

    async def test_connections_beyond_the_limit_are_closed(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(server, "CONNECTIONS", 2)
        held = [await asyncio.open_connection("127.0.0.1", place.sidecar.console_port) for _ in range(2)]
        for reader, writer in held:  # so that both are known
            writer.write(b"GET /api/ingresses HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"200" in await reader.readline()
        assert await raw(place, b"") == b""
        for _, writer in held:
            writer.close()

    async def test_streams_beyond_the_limit_are_refused(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(stream, "CLIENTS", 3)
        async with AsyncExitStack() as stack:
            for _ in range(3):
                answer = await stack.enter_async_context(place.session.get("/api/decisions/stream"))
                assert answer.status == 200
            refused = await place.get("/api/decisions/stream")
            assert refused.status == 503
            assert refused.headers["Retry-After"] == "10"
            assert (await place.get("/api/decisions")).status == 200
