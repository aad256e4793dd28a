"""A client, Istio's ingress gateway with the sidecar in its pod, and brokers whose pods take nothing but mutual TLS.

Every pod has a network of its own, so that addresses and ports are those of the manifests. In the gateway's there are
a real Envoy, with what Istio's code makes of our chart's routes, and the sidecar, as the pod's manifest has it; in a
broker's the Envoy that Istio puts there. The brokers themselves are simulated, in the tests' own process.
"""

import asyncio
import json
import signal
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest
from aiohttp.abc import AbstractResolver, ResolveResult
from apiclient import Object
from istio_certificates import BROKER, Authority
from istio_cluster import GATEWAY_POD, HOST, SERVICE, WEB, statistics
from istio_envoys import ADMIN, bootstrap, taking_the_port
from istio_meshes import BROKER_ADDRESSES, GATEWAY_ADDRESS, Mesh
from istio_program import named
from pod_containers import Container, start
from pod_networks import Network, NodeNetwork, dial_machine
from pod_volumes import Folder, Unknown
from processes import BIN, started
from simulated.cluster import Listener, SimulatedCluster

NAMES = {SERVICE: list(BROKER_ADDRESSES.values())}
"""The cluster's DNS: a Service without an address has those of all its pods."""


class Outside(AbstractResolver):
    """The DNS outside: every name leads to the gateway, which knows those that are the ingress's."""

    async def resolve(self, host: str, port: int = 0, family: int = 0) -> list[ResolveResult]:
        return [ResolveResult(hostname=host, host=GATEWAY_ADDRESS, port=port, family=2, proto=0, flags=0)]

    async def close(self) -> None:
        pass


@dataclass
class IstioStack:
    """All that runs, and how to change it."""

    mesh: Mesh
    way: str
    folder: Path
    cluster: SimulatedCluster
    networks: dict[str, Network]
    client: aiohttp.ClientSession
    sidecar: Container
    volumes: dict[str, Folder]
    _start: Callable[[], Awaitable[Container]]
    _envoys: dict[str, AsyncExitStack] = field(default_factory=dict)

    @property
    def certificates(self) -> Path:
        """Where Istio's agent writes and the sidecar reads them."""
        return self.volumes["istio-certs"].path

    async def restart_sidecar(self) -> None:
        """As a kubelet does when the container has ended."""
        self.sidecar = await self._start()
        await self.sidecar.process.says("serving")

    async def gateway_metrics(self) -> str:
        """What Prometheus scrapes of the gateway's Envoy."""
        inside = aiohttp.TCPConnector(socket_factory=lambda _: self.networks["gateway"].socket())
        async with (
            aiohttp.ClientSession(connector=inside) as session,
            session.get(f"http://{ADMIN[0]}:{ADMIN[1]}/stats/prometheus") as answer,
        ):
            return await answer.text()

    async def open_gateway(self, bypass: bool = False, fail_open: bool = False) -> None:
        """Give the gateway's Envoy what istiod makes of the routes; the one before goes."""
        pushed = self.mesh.pushed(self.way, bypass=bypass, fail_open=fail_open)[GATEWAY_POD]
        workload = self.mesh.authority.issue(self.mesh.identity(self.way))
        await self._envoy("gateway", bootstrap(pushed, workload, NAMES, statistics()))

    async def open_brokers(
        self, strict: bool = True, authority: Authority | None = None, identity: str = BROKER
    ) -> None:
        """Give the brokers' pods Envoys, with certificates of this authority and identity."""
        workload = (authority or self.mesh.authority).issue(identity)

        async def open_one(number: int, address: str) -> None:
            pushed = self.mesh.pushed(self.way, strict=strict)[f"pulsar-broker-{number}"]
            taken = taking_the_port(pushed, address, WEB, (_application(number), WEB))
            await self._envoy(f"broker-{number}", bootstrap(taken, workload, NAMES))

        async with asyncio.TaskGroup() as tasks:
            for each in BROKER_ADDRESSES.items():
                tasks.create_task(open_one(*each))

    async def close(self) -> None:
        for stack in self._envoys.values():
            await stack.aclose()

    async def _envoy(self, pod: str, config: Object) -> None:
        if pod in self._envoys:
            await self._envoys.pop(pod).aclose()
        file = self.folder / f"{pod}.json"
        file.write_text(json.dumps(config))
        stack = self._envoys[pod] = AsyncExitStack()
        await stack.enter_async_context(
            started(
                "/usr/bin/setpriv", "--pdeathsig", "KILL", "/usr/bin/nsenter", f"--net={self.networks[pod].path}",
                BIN / "envoy", "-c", file, "--concurrency", "1", "--use-dynamic-base-id",
                "-l", "warning", "--component-log-level", "main:debug",
                says="worker entering dispatch loop",
            )
        )  # fmt: skip


@asynccontextmanager
async def istio_stack(
    mesh: Mesh, folder: Path, way: str = "gateway values", early: bool = False
) -> AsyncIterator[IstioStack]:
    """The gateway, with the sidecar in its pod by that way. `early`: before Istio's agent has written certificates."""
    trust = ssl.create_default_context()
    mesh.ingress_ca.configure_trust(trust)
    external = Listener(broker_service_url_tls=f"pulsar+ssl://broker-{{n}}.{HOST}:6651")
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(SimulatedCluster(brokers=3, listeners={"external": external}))
        node = NodeNetwork(folder / "network")
        stack.callback(node.close)
        networks = {}
        for name, expected in {"gateway": GATEWAY_ADDRESS, **_broker_pods(), "client": "10.1.0.6"}.items():
            networks[name], address = node.pod()
            stack.callback(networks[name].close)
            assert address == expected
        for number, broker in enumerate(cluster.brokers):
            await node.forward(_application(number), WEB, partial(dial_machine, urlsplit(broker.web)))

        objects = mesh.gateway(way)
        pod = named(objects, "Pod", GATEWAY_POD)
        (container,) = (each for each in pod["spec"]["initContainers"] if each["name"] == "pulsar-ingress-proxy")
        volumes = _volumes(pod, container, objects, folder / "volumes")
        if not early:
            mesh.authority.issue(mesh.identity(way)).write(volumes["istio-certs"].path)
        hosts = folder / "pod-hosts"
        hosts.write_text(_hosts())

        async def begin() -> Container:
            begun = await start(pod, container, folder / "root", networks["gateway"], hosts, volumes, {})
            stack.push_async_callback(begun.process.end, signal.SIGKILL)
            return begun

        sidecar = await begin()
        connector = aiohttp.TCPConnector(
            resolver=Outside(), ssl=trust, socket_factory=lambda _: networks["client"].socket(), limit=0
        )
        client = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))
        found = IstioStack(mesh, way, folder, cluster, networks, client, sidecar, volumes, begin)
        stack.push_async_callback(found.close)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(sidecar.process.says("holding" if early else "serving"))
            tasks.create_task(found.open_gateway())
            tasks.create_task(found.open_brokers())
        yield found


@pytest.fixture
async def istio(mesh: Mesh, tmp_path: Path) -> AsyncIterator[IstioStack]:
    async with istio_stack(mesh, tmp_path) as found:
        yield found


def _broker_pods() -> dict[str, str]:
    return {f"broker-{number}": address for number, address in BROKER_ADDRESSES.items()}


def _application(number: int) -> str:
    """Where the Envoy of a broker's pod finds the broker: an address of the node, which leads to the simulated one."""
    return f"10.2.0.{number + 1}"


def _hosts() -> str:
    """The same, and the pods' own names."""
    lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, found in NAMES.items() for address in found)]
    lines += [f"{address} pulsar-broker-{number}.{SERVICE}" for number, address in BROKER_ADDRESSES.items()]
    return "\n".join(lines) + "\n"


def _volumes(pod: Object, container: Object, objects: list[Object], folder: Path) -> dict[str, Folder]:
    """What the container mounts."""
    sources = {each["name"]: each for each in pod["spec"]["volumes"]}
    made = {}
    for mount in container["volumeMounts"]:
        source = sources[mount["name"]]
        made[mount["name"]] = Folder(folder / mount["name"])
        if "configMap" in source:
            made[mount["name"]].write(named(objects, "ConfigMap", source["configMap"]["name"])["data"])
        elif "emptyDir" not in source:
            raise Unknown(f"a volume of {source}")
    return made
