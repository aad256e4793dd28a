"""List and watch: what an informer reports, and how it recovers from every way in which an API server can fail."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from fake_api import INGRESSES, FakeApi, answers, says, serving_api

from pulsar_ingress_proxy.discovery.api_client import KubernetesApi, Object, Patience, Refused
from pulsar_ingress_proxy.discovery.credentials import Credentials
from pulsar_ingress_proxy.discovery.informer import Backoff, Informer, Recovery
from pulsar_ingress_proxy.discovery.reconciler.kinds import BY_NAME, Kind

QUICK = Patience(first_pause=0.01, longest_pause=0.02, watch=5)


class Heard:
    """All that a watch has told, in order."""

    def __init__(self) -> None:
        self.reported: list[tuple[str, ...]] = []
        self.objects: list[Object] = []
        self._more = asyncio.Event()

    def _tell(self, *words: str) -> None:
        self.reported.append(words)
        self._more.set()

    def put(self, obj: Object) -> None:
        self.objects.append(obj)
        self._tell("put", obj["metadata"]["name"])

    def remove(self, kind: Kind, namespace: str, name: str) -> None:
        self._tell("remove", name)

    def listed(self, watch: Informer) -> None:
        self._tell("listed")

    def opened(self, watch: Informer) -> None:
        self._tell("opened")

    def ended(self, watch: Informer) -> None:
        self._tell("ended")

    def refused(self, watch: Informer, refused: Refused) -> None:
        self._tell("refused", refused.reason)

    async def until(self, *words: str, times: int = 1) -> None:
        while self.reported.count(words) < times:
            self._more.clear()
            await self._more.wait()


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with serving_api(FakeApi(INGRESSES)) as one:
        yield one


@asynccontextmanager
async def watching(
    api: FakeApi, folder: Path, patience: Patience = QUICK, kind: str = "Ingress", **user: str
) -> AsyncIterator[tuple[Heard, asyncio.Task[None]]]:
    heard = Heard()
    cluster = KubernetesApi(Credentials(str(api.kubeconfig(folder, **user))), patience)
    known = BY_NAME[kind]
    watch = Informer(cluster, known, known.versions[0], "pulsar", heard, Recovery())
    task = asyncio.create_task(watch.run())
    try:
        yield heard, task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await cluster.close()


async def test_objects_are_listed_by_pages_and_then_watched(api: FakeApi, tmp_path: Path) -> None:
    api.page = 2
    for number in range(5):
        await api.put(INGRESSES, f"ingress-{number}", spec={})
    async with watching(api, tmp_path) as (heard, _):
        await heard.until("opened")
        await api.put(INGRESSES, "ingress-1", spec={"changed": True})
        await api.put(INGRESSES, "late", spec={})
        await api.delete(INGRESSES, "ingress-0")
        await heard.until("remove", "ingress-0")
    assert heard.reported == [
        *[("put", f"ingress-{number}") for number in range(5)],
        ("listed",),
        ("opened",),
        ("put", "ingress-1"),
        ("put", "late"),
        ("remove", "ingress-0"),
    ]
    assert {(each["apiVersion"], each["kind"]) for each in heard.objects} == {("networking.k8s.io/v1", "Ingress")}
    watch = await api.watched(INGRESSES)
    assert (watch.query["allowWatchBookmarks"], watch.since) == ("true", "105")
    assert {request.headers["Authorization"] for request in api.requests} == {"Bearer secret"}


async def test_informer_resumes_from_the_last_bookmark_when_a_watch_ends(api: FakeApi, tmp_path: Path) -> None:
    async with watching(api, tmp_path) as (heard, _):
        await (await api.watched(INGRESSES)).tell("BOOKMARK", {"metadata": {"resourceVersion": "170"}})
        (await api.watched(INGRESSES)).end()
        assert (await api.watched(INGRESSES, 2)).since == "170"
        await heard.until("opened", times=2)
    assert heard.reported == [("listed",), ("opened",), ("ended",), ("opened",)]
    assert api.lists(INGRESSES) == 1


async def expire_by_status(api: FakeApi) -> None:
    api.script[INGRESSES].append(says(410, "too old resource version"))
    (await api.watched(INGRESSES)).cut()


async def expire_by_event(api: FakeApi) -> None:
    status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
    await (await api.watched(INGRESSES)).tell("ERROR", status)


@pytest.mark.parametrize("expire", [expire_by_status, expire_by_event])
async def test_relist_after_expiry_reports_only_new_changed_and_removed_objects(
    api: FakeApi, tmp_path: Path, expire: Callable[[FakeApi], Awaitable[None]]
) -> None:
    for name in ("same", "changed", "gone"):
        await api.put(INGRESSES, name)
    async with watching(api, tmp_path) as (heard, _):
        await heard.until("opened")
        api.is_quiet = True
        await api.put(INGRESSES, "changed")
        await api.put(INGRESSES, "new")
        await api.delete(INGRESSES, "gone")
        await expire(api)
        await heard.until("opened", times=2)
    assert ("refused", "expired") in heard.reported
    reported = heard.reported[heard.reported.index(("refused", "expired")) + 1 :]
    assert reported == [("put", "changed"), ("put", "new"), ("remove", "gone"), ("listed",), ("opened",)]


async def test_list_restarts_when_its_continue_token_has_expired(api: FakeApi, tmp_path: Path) -> None:
    api.page = 1
    for name in ("one", "two"):
        await api.put(INGRESSES, name)

    async def first_page(request: web.Request) -> web.StreamResponse:
        metadata = {"resourceVersion": "100", "continue": "1"}
        return web.json_response({"metadata": metadata, "items": [api.objects[INGRESSES]["one"]]})

    api.script[INGRESSES].extend([first_page, says(410, "the provided continue parameter is too old")])
    async with watching(api, tmp_path) as (heard, _):
        await heard.until("opened")
    assert heard.reported == [("put", "one"), ("refused", "expired"), ("put", "two"), ("listed",), ("opened",)]


async def test_throttled_request_is_retried_after_the_retry_after_delay(api: FakeApi, tmp_path: Path) -> None:
    order: list[str] = []

    async def busy(request: web.Request) -> web.StreamResponse:
        asyncio.get_running_loop().call_later(0.9, order.append, "almost a second")
        return await says(429, "too many requests", Retry_After="1")(request)

    api.script[INGRESSES].append(busy)
    async with watching(api, tmp_path) as (heard, _):
        await api.asked(INGRESSES, 2)
        order.append("asked again")
        await heard.until("opened")
    assert order == ["almost a second", "asked again"]
    assert heard.reported[0] == ("refused", "throttled")


async def test_silent_watch_is_abandoned_and_resumed_without_a_new_list(api: FakeApi, tmp_path: Path) -> None:
    patience = Patience(first_pause=0.01, longest_pause=0.02, silence=0.2)
    async with watching(api, tmp_path, patience) as (heard, _):
        await (await api.watched(INGRESSES)).tell("BOOKMARK", {"metadata": {"resourceVersion": "150"}})
        assert (await api.watched(INGRESSES, 2)).since == "150"
    assert heard.reported[:3] == [("listed",), ("opened",), ("refused", "silent")]
    assert api.lists(INGRESSES) == 1


EVENT = json.dumps(
    {"type": "ADDED", "object": {"metadata": {"name": "half", "resourceVersion": "130"}, "spec": {"rules": []}}}
).encode()


@pytest.mark.parametrize(
    ("data", "is_cut", "reason"),
    [
        (EVENT[:40], True, "closed"),
        (EVENT[:40], False, "garbled"),
        (b"<html>\n", False, "garbled"),
        (b"[]\n", False, "garbled"),
        (b'{"type": "ADDED"}\n', False, "garbled"),
        (b'{"type": "ADDED", "object": {"metadata": {}}}\n', False, "garbled"),
        (b'{"type": "RENAMED", "object": {}}\n', False, "garbled"),
    ],
    ids=["half, by a crash", "half, in good order", "HTML", "no object", "no subject", "no name", "no event"],
)
async def test_informer_resumes_after_the_last_valid_event_when_an_event_is_garbled(
    api: FakeApi, tmp_path: Path, data: bytes, is_cut: bool, reason: str
) -> None:
    async with watching(api, tmp_path) as (heard, _):
        watch = await api.watched(INGRESSES)
        await api.put(INGRESSES, "whole")
        await heard.until("put", "whole")
        await watch.send(data)
        watch.cut() if is_cut else watch.end()
        again = await api.watched(INGRESSES, 2)
    assert again.since == "101"
    assert heard.reported[:4] == [("listed",), ("opened",), ("put", "whole"), ("refused", reason)]


async def test_error_event_in_a_watch_causes_a_new_list(api: FakeApi, tmp_path: Path) -> None:
    async with watching(api, tmp_path) as (heard, _):
        status = {"code": 504, "reason": "Timeout", "message": "Too large resource version: 100, current: 9"}
        await (await api.watched(INGRESSES)).tell("ERROR", status)
        await api.watched(INGRESSES, 2)
    assert heard.reported[:4] == [("listed",), ("opened",), ("refused", "refused"), ("listed",)]


@pytest.mark.parametrize(
    ("status", "reason"),
    [(401, "unauthorized"), (403, "forbidden"), (400, "refused"), (500, "unreachable"), (503, "unreachable")],
)
async def test_refused_list_request_is_retried_until_it_succeeds(
    api: FakeApi, tmp_path: Path, status: int, reason: str
) -> None:
    api.script[INGRESSES].extend([says(status)] * 3)
    async with watching(api, tmp_path) as (heard, _):
        await heard.until("opened")
    assert heard.reported == [*[("refused", reason)] * 3, ("listed",), ("opened",)]


async def test_malformed_list_answer_is_retried(api: FakeApi, tmp_path: Path) -> None:
    for text in ("<html>", "[]", "{}", '{"items": [{}], "metadata": {"resourceVersion": "1"}}', '{"items": []}'):
        api.script[INGRESSES].append(answers(text))
    async with watching(api, tmp_path) as (heard, _):
        await heard.until("opened")
    assert heard.reported == [*[("refused", "garbled")] * 5, ("listed",), ("opened",)]


async def test_refused_watch_is_retried_without_a_new_list(api: FakeApi, tmp_path: Path) -> None:
    async with watching(api, tmp_path) as (heard, _):
        await api.watched(INGRESSES)
        api.script[INGRESSES].append(says(403))
        (await api.watched(INGRESSES)).cut()
        await api.watched(INGRESSES, 2)
    assert ("refused", "forbidden") in heard.reported
    assert api.lists(INGRESSES) == 1


async def test_watches_that_end_at_once_count_as_failures(api: FakeApi, tmp_path: Path) -> None:
    async with watching(api, tmp_path) as (heard, _):
        for times in (1, 2, 3):
            (await api.watched(INGRESSES, times)).end()
        await heard.until("refused", "closed", times=3)
    assert ("ended",) not in heard.reported


async def test_an_api_server_that_is_away_is_tried_until_it_is_back(tmp_path: Path) -> None:
    api = FakeApi(INGRESSES)
    async with serving_api(api):
        await api.put(INGRESSES, "ingress")
    async with watching(api, tmp_path) as (heard, _):
        await heard.until("refused", "unreachable", times=3)
        async with serving_api(api, api.port):
            await heard.until("opened")
            assert heard.reported[-3:] == [("put", "ingress"), ("listed",), ("opened",)]


async def test_objects_of_a_kind_are_removed_when_its_definition_is_deleted(api: FakeApi, tmp_path: Path) -> None:
    routes = "/apis/gateway.networking.k8s.io/v1/namespaces/pulsar/httproutes"
    api.define("gateway.networking.k8s.io", "v1", "httproutes")
    await api.put(routes, "route")
    async with watching(api, tmp_path, kind="HTTPRoute") as (heard, task):
        watch = await api.watched(routes)
        api.undefine("gateway.networking.k8s.io")
        watch.cut()
        await task
    assert heard.reported[-1] == ("remove", "route")


async def test_a_404_for_a_kind_that_is_still_defined_removes_no_objects(api: FakeApi, tmp_path: Path) -> None:
    routes = "/apis/gateway.networking.k8s.io/v1/namespaces/pulsar/httproutes"
    api.define("gateway.networking.k8s.io", "v1", "httproutes")
    await api.put(routes, "route")
    async with watching(api, tmp_path, kind="HTTPRoute") as (heard, _):
        await api.watched(routes)
        api.script[routes].append(says(404))
        (await api.watched(routes)).cut()
        await api.watched(routes, 2)
    assert ("remove", "route") not in heard.reported
    assert ("refused", "absent") in heard.reported


async def test_token_file_is_read_again_after_401(api: FakeApi, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old")
    async with watching(api, tmp_path, tokenFile=str(token)):
        watch = await api.watched(INGRESSES)
        token.write_text("new")
        api.script[INGRESSES].append(says(401, "Unauthorized"))
        watch.cut()
        await api.watched(INGRESSES, 2)
    tokens = [request.headers["Authorization"] for request in api.requests]
    assert (tokens[0], tokens[-1]) == ("Bearer old", "Bearer new")
    assert api.lists(INGRESSES) == 1


def test_retry_pauses_double_up_to_the_longest_and_are_jittered() -> None:
    for _ in range(100):
        pauses = Backoff(0.5, 30)
        waits = [pauses.next() for _ in range(2000)]
        for number, wait in enumerate(waits[:7]):
            longest = min(30, 0.5 * 2**number)
            assert longest / 2 <= wait <= longest
        assert max(waits) <= 30
    assert len(set(waits)) > 1000


@pytest.mark.parametrize("turns", range(5))
async def test_cancellation_is_not_lost_in_the_moment_when_another_informer_reaches_the_server(turns: int) -> None:
    """asyncio.wait_for loses it up to Python 3.11, and a reload would then wait for the informer for ever."""
    recovery = Recovery()
    waiting = asyncio.create_task(recovery.wait(3600))
    for _ in range(3):
        await asyncio.sleep(0)
    recovery.tell()
    for _ in range(turns):
        await asyncio.sleep(0)
    if waiting.cancel():
        with pytest.raises(asyncio.CancelledError):
            await waiting
