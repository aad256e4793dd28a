"""An API server that does what a test says: for faults that a real one cannot be made to have at will.

It lists in pages and watches as Kubernetes does, from versions that it counts; a test may put an answer of its own
before the next request to a path, and has its hands on every open watch.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

Object = dict[str, Any]
Step = Callable[[web.Request], Awaitable[web.StreamResponse]]

INGRESSES = "/apis/networking.k8s.io/v1/namespaces/pulsar/ingresses"
BUILT_IN = {
    "Ingress": "/apis/networking.k8s.io/v1/namespaces/{}/ingresses",
    "Service": "/api/v1/namespaces/{}/services",
    "Pod": "/api/v1/namespaces/{}/pods",
    "EndpointSlice": "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices",
}


def ingress_parts(host: str, listener: str = "external") -> Object:
    """The parts of an Ingress that is annotated with a listener."""
    backend = {"service": {"name": "pulsar-broker", "port": {"number": 8080}}}
    paths = [{"path": "/", "pathType": "Prefix", "backend": backend}]
    return {
        "metadata": {"annotations": {"pulsar-ingress-proxy/listener": listener}},
        "spec": {"rules": [{"host": host, "http": {"paths": paths}}]},
    }


def says(status: int, message: str = "no", **headers: str) -> Step:
    """A Status instead of what was asked for."""

    async def say(request: web.Request) -> web.StreamResponse:
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.json_response({"kind": "Status", "code": status, "message": message}, status=status, headers=fields)

    return say


def answers(text: str) -> Step:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(text=text)

    return answer


class OpenWatch:
    """One watch that a client has opened."""

    def __init__(self, request: web.Request, response: web.StreamResponse) -> None:
        self.since = request.query["resourceVersion"]
        self.query = dict(request.query)
        self._request = request
        self._response = response
        self.closed = asyncio.Event()

    async def tell(self, type: str, each: Object) -> None:
        await self.send(json.dumps({"type": type, "object": each}).encode() + b"\n")

    async def send(self, data: bytes) -> None:
        """Any bytes."""
        await self._response.write(data)

    def end(self) -> None:
        """In good order."""
        self.closed.set()

    def cut(self) -> None:
        """As by a crash."""
        assert self._request.transport is not None
        self._request.transport.abort()
        self.closed.set()


class FakeApi:
    """Objects by the path of their collection; whatever is not `served` is 404."""

    def __init__(self, *paths: str) -> None:
        self.served: set[str] = set(paths)
        self.objects: dict[str, dict[str, Object]] = defaultdict(dict)
        self.groups: dict[str, dict[str, list[str]]] = {}
        """Kinds of CRDs: plurals by version by group."""
        self.script: dict[str, deque[Step]] = defaultdict(deque)
        self.watches: dict[str, list[OpenWatch]] = defaultdict(list)
        self.requests: list[web.Request] = []
        self.version = 100
        self.is_up = True
        self.is_quiet = False
        """Whether watches are told nothing of what happens."""
        self.page: int | None = None
        """Objects of a page, where that is less than was asked for."""
        self._changed = asyncio.Condition()
        self.port = 0

    # What tests do.

    def serve_built_in(self, namespace: str = "pulsar") -> None:
        self.served.update(path.format(namespace) for path in BUILT_IN.values())

    def define(self, group: str, version: str, *plurals: str, namespace: str = "pulsar") -> None:
        """As applying their CRDs does."""
        self.groups.setdefault(group, {})[version] = list(plurals)
        self.served.update(f"/apis/{group}/{version}/namespaces/{namespace}/{plural}" for plural in plurals)

    def undefine(self, group: str) -> None:
        del self.groups[group]
        for path in [path for path in self.served if path.startswith(f"/apis/{group}/")]:
            self.served.discard(path)
            self.objects.pop(path, None)

    async def put(self, path: str, name: str, **parts: Any) -> Object:
        """Create or change an object, and tell who watches."""
        self.version += 1
        namespace = path.split("/namespaces/")[1].split("/")[0]
        metadata = {"name": name, "namespace": namespace, "resourceVersion": str(self.version)}
        each = {**parts, "metadata": {**parts.get("metadata", {}), **metadata}}
        what = "MODIFIED" if name in self.objects[path] else "ADDED"
        self.objects[path][name] = each
        for watch in self.open(path):
            await watch.tell(what, each)
        return each

    async def delete(self, path: str, name: str) -> None:
        self.version += 1
        each = self.objects[path].pop(name)
        each = {**each, "metadata": {**each["metadata"], "resourceVersion": str(self.version)}}
        for watch in self.open(path):
            await watch.tell("DELETED", each)

    def open(self, path: str) -> list[OpenWatch]:
        return [] if self.is_quiet else [watch for watch in self.watches[path] if not watch.closed.is_set()]

    async def watched(self, path: str, times: int = 1) -> OpenWatch:
        """The so-manieth watch of a path, once it has been opened."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.watches[path]) >= times)
        return self.watches[path][times - 1]

    async def asked(self, path: str, times: int = 1) -> list[web.Request]:
        """All requests to a path, once there are so many."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.to(path)) >= times)
        return self.to(path)

    def to(self, path: str) -> list[web.Request]:
        return [request for request in self.requests if request.path == path]

    def lists(self, path: str) -> int:
        """How often a list was begun."""
        return sum("watch" not in request.query and "continue" not in request.query for request in self.to(path))

    def kubeconfig(self, folder: Path, namespace: str = "pulsar", **user: str) -> Path:
        context = {"cluster": "fake", "user": "user", "namespace": namespace}
        file = folder / "kubeconfig"
        config: Object = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "fake", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}],
            "users": [{"name": "user", "user": user or {"token": "secret"}}],
            "contexts": [{"name": "fake", "context": context}],
            "current-context": "fake",
        }
        file.write_text(yaml.safe_dump(config))
        return file

    # What it answers.

    async def answer(self, request: web.Request) -> web.StreamResponse:
        async with self._changed:
            self.requests.append(request)
            self._changed.notify_all()
        path = request.path
        if not self.is_up:
            return await says(503, "shutting down")(request)
        if self.script[path]:
            return await self.script[path].popleft()(request)
        if path.startswith("/apis/") and path.count("/") in (2, 3):
            return await self._discovery(request, *path.split("/")[2:])
        if path not in self.served:
            collection, _, name = path.rpartition("/")
            if name in self.objects.get(collection, {}):
                return web.json_response(self.objects[collection][name])
            return await says(404, "the server could not find the requested resource")(request)
        return await (self._watch(request) if "watch" in request.query else self._list(request))

    async def _discovery(self, request: web.Request, group: str, version: str | None = None) -> web.StreamResponse:
        versions = self.groups.get(group)
        if versions is None or (version is not None and version not in versions):
            return await says(404, "the server could not find the requested resource")(request)
        if version is None:
            return web.json_response({"kind": "APIGroup", "versions": [{"version": name} for name in versions]})
        return web.json_response({"resources": [{"name": plural} for plural in versions[version]]})

    async def _list(self, request: web.Request) -> web.StreamResponse:
        found = [*self.objects[request.path].values()]
        limit = self.page or int(request.query["limit"])
        start = int(request.query.get("continue", 0))
        metadata = {"resourceVersion": str(self.version)}
        if start + limit < len(found):
            metadata["continue"] = str(start + limit)
        return web.json_response({"metadata": metadata, "items": found[start : start + limit]})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        watch = OpenWatch(request, response)
        since = int(watch.since)
        for each in self.objects[request.path].values():
            if int(each["metadata"]["resourceVersion"]) > since:
                await watch.tell("MODIFIED", each)
        async with self._changed:
            self.watches[request.path].append(watch)
            self._changed.notify_all()
        await watch.closed.wait()
        return response


@asynccontextmanager
async def serving_api(api: FakeApi, port: int = 0, tls: ssl.SSLContext | None = None) -> AsyncIterator[FakeApi]:
    """On a socket of loopback, for as long as the block lasts; then every connection is cut."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", api.answer)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port, reuse_address=True, ssl_context=tls)
    await site.start()
    assert runner.addresses
    api.port, api.is_up = runner.addresses[0][1], True
    try:
        yield api
    finally:
        api.is_up = False
        for watches in api.watches.values():
            for watch in watches:
                watch.end()
        # asyncio up to 3.11 leaks a connection that it has accepted but not made when its server closes.
        while accepting := [task for task in asyncio.all_tasks() if "_accept_connection2" in str(task.get_coro())]:
            await asyncio.wait(accepting)
        await runner.cleanup()
