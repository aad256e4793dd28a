"""The Kubernetes of the soak test: an API server, and the objects in it that come, change and go.

It lists and watches as Kubernetes does, ends watches, forgets its history (410), and is away at times.
"""

import asyncio
import json
import random
from collections import Counter, defaultdict, deque
from pathlib import Path
from typing import Any, Self

import yaml
from aiohttp import web

from bench.soak_tally import APP_HOSTS, APPS, CLUSTER_HOST

Object = dict[str, Any]

NAMESPACE = "pulsar"
INGRESSES = f"/apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/ingresses"
SERVICES, PODS = (f"/api/v1/namespaces/{NAMESPACE}/{plural}" for plural in ("services", "pods"))
SLICES = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices"
ADDRESS = "127.0.2.1"
"""Not the address that connections leave from, so that nobody takes the port while the server is away."""
HISTORY = 50


class ApiServer:
    """Four collections, by path. What it is asked for beyond them is 404, as in a cluster without those CRDs."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Object]] = {path: {} for path in (INGRESSES, SERVICES, PODS, SLICES)}
        self.requests: Counter[str] = Counter()
        """Lists, watches, and others."""
        self._version = 1
        self._history: deque[tuple[int, str, bytes]] = deque(maxlen=HISTORY)
        """The last events: their version, collection and line."""
        self._watches: dict[str, set[asyncio.Queue[bytes | None]]] = defaultdict(set)
        self._runner: web.ServerRunner | None = None
        self._port = 0

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        self._runner = web.ServerRunner(web.Server(self._answer, access_log=None), shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, ADDRESS, self._port).start()
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        self.end_watches()
        if self._runner is not None:
            await self._runner.cleanup()
        self._runner = None

    def put(self, path: str, name: str, **parts: Any) -> None:
        what = "MODIFIED" if name in self.objects[path] else "ADDED"
        metadata = {**parts.pop("metadata", {}), "name": name, "namespace": NAMESPACE}
        self._happened(what, path, {**parts, "metadata": metadata})

    def delete(self, path: str, name: str) -> None:
        self._happened("DELETED", path, self.objects[path][name])

    def end_watches(self) -> None:
        """In good order, as an API server does every few minutes."""
        for watches in self._watches.values():
            for watch in watches:
                watch.put_nowait(None)

    def forget(self) -> None:
        """The history: a watch that begins before now gets 410."""
        self._version += 1
        self._history.clear()
        self._history.append((self._version, "", b""))

    def _happened(self, what: str, path: str, each: Object) -> None:
        self._version += 1
        each = {**each, "metadata": {**each["metadata"], "resourceVersion": str(self._version)}}
        name = each["metadata"]["name"]
        if what == "DELETED":
            del self.objects[path][name]
        else:
            self.objects[path][name] = each
        line = _line(what, each)
        self._history.append((self._version, path, line))
        for watch in self._watches[path]:
            watch.put_nowait(line)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        is_watch = "watch" in request.query
        self.requests["other" if request.path not in self.objects else "watch" if is_watch else "list"] += 1
        if request.path not in self.objects:
            return web.json_response({"kind": "Status", "code": 404, "message": "not found"}, status=404)
        if is_watch:
            return await self._watch(request, int(request.query["resourceVersion"]))
        items = list(self.objects[request.path].values())
        return web.json_response({"metadata": {"resourceVersion": str(self._version)}, "items": items})

    async def _watch(self, request: web.BaseRequest, since: int) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        if self._history and since + 1 < self._history[0][0]:
            lines.put_nowait(_line("ERROR", {"kind": "Status", "code": 410, "message": "too old"}))
            lines.put_nowait(None)
        else:
            for version, path, line in self._history:
                if version > since and path == request.path:
                    lines.put_nowait(line)
        self._watches[request.path].add(lines)
        try:
            await response.prepare(request)
            while (line_or_end := await lines.get()) is not None:
                await response.write(line_or_end)
        except ConnectionError:  # the sidecar has begun another watch, or has ended
            pass
        finally:
            self._watches[request.path].discard(lines)
        return response

    def kubeconfig(self, folder: Path) -> Path:
        file = folder / "kubeconfig"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "soak", "cluster": {"server": f"http://{ADDRESS}:{self._port}"}}],
            "users": [{"name": "soak", "user": {"token": "soak"}}],
            "contexts": [{"name": "soak", "context": {"cluster": "soak", "user": "soak", "namespace": NAMESPACE}}],
            "current-context": "soak",
        }
        file.write_text(yaml.safe_dump(config))
        return file


def _line(what: str, each: Object) -> bytes:
    return json.dumps({"type": what, "object": each}).encode() + b"\n"


LABELS = {"app": "broker"}


class Objects:
    """What users and controllers put into the cluster: pods of brokers with their routes, and ingresses with hosts."""

    def __init__(self, api: ApiServer, web_port: int, dice: random.Random) -> None:
        self._api = api
        self._web_port = web_port
        self._dice = dice

    def add_route(self, name: str) -> None:
        """A Service of one broker, and the Ingress that leads to it."""
        ports = [{"name": "http", "port": self._web_port}]
        self._api.put(SERVICES, name, spec={"selector": {**LABELS, "broker": name}, "ports": ports})
        self._put_ingress(name, f"{name}.{CLUSTER_HOST}", name)

    def add_pod(self, name: str, address: str) -> None:
        ports = [{"name": "http", "containerPort": self._web_port}]
        status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
        labels = {"labels": {**LABELS, "broker": name}}
        self._api.put(PODS, name, metadata=labels, spec={"containers": [{"name": "b", "ports": ports}]}, status=status)

    def remove_pod(self, name: str) -> None:
        self._api.delete(PODS, name)

    def change_one(self) -> None:
        """An ingress comes, gets other hosts, or goes; or the route of a broker does."""
        present, roll = self._api.objects[INGRESSES], self._dice.random()
        if roll < 0.1 and (routes := [name for name in present if name.startswith("broker-")]):
            self._api.delete(INGRESSES, self._dice.choice(routes))
        elif roll < 0.3 and (missing := [name for name in self._api.objects[SERVICES] if name not in present]):
            self.add_route(self._dice.choice(missing))
        else:
            name = f"app-{self._dice.randrange(APPS)}"
            if name in present and roll > 0.7:
                self._api.delete(INGRESSES, name)
            else:
                self._put_ingress(name, f"{name}-{self._dice.randrange(APP_HOSTS)}.{CLUSTER_HOST}", "all")

    def _put_ingress(self, name: str, host: str, service: str) -> None:
        backend = {"service": {"name": service, "port": {"name": "http"}}}
        paths = [{"path": "/", "pathType": "Prefix", "backend": backend}]
        spec = {
            "ingressClassName": "nginx",
            "tls": [{"hosts": [host]}],
            "rules": [{"host": host, "http": {"paths": paths}}],
        }
        self._api.put(
            INGRESSES, name, metadata={"annotations": {"pulsar-ingress-proxy/listener": "external"}}, spec=spec
        )

    @property
    def hosts(self) -> dict[str, list[str]]:
        """The hosts of each ingress, by the name that the sidecar gives it."""
        return {
            f"ingress/{NAMESPACE}/{name}": [rule["host"] for rule in each["spec"]["rules"]]
            for name, each in self._api.objects[INGRESSES].items()
        }

    @property
    def addresses(self) -> dict[str, str]:
        """The address of each pod, by its name."""
        return {name: each["status"]["podIP"] for name, each in self._api.objects[PODS].items()}
