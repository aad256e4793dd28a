"""A node of one's own for the real API server: small stand-ins for the scheduler, the kubelet and kube-proxy.

It runs every pod of one namespace as processes, in namespaces of network and files, and writes what became of it into
the pod's status. No images are pulled: whatever image a manifest names, its command is run from the tests' environment.
Nothing is restarted, resources are not limited, and of probes only startup and readiness are asked.
`controllers.py` has the stand-ins for what makes pods.
"""

import asyncio
import itertools
import shutil
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
from apiclient import Api, Object, Refused
from apiserver import ApiServer
from controllers import Controllers
from following import follow
from kubelet_logs import serving_logs
from pod_containers import Container, start
from pod_networks import Network, NodeNetwork, dial_machine
from pod_volumes import Unknown, Volumes
from simulated.cluster import SimulatedCluster

API_ADDRESS = "10.96.0.1"  # the first of the Services' addresses is the API server's, and in its certificate
NODE = "node-1"
GRACE_SECONDS = 30
PROBE_SECONDS = 0.05
WAIT_SECONDS = 60
MOST_SAID = 4000  # of a pod, where a test has failed


class Pod:
    """A pod that was given to the node."""

    def __init__(self, api: Api, seen: Object, folder: Path) -> None:
        self.seen = seen
        self.volumes = Volumes(api, seen, folder / "volumes")
        self.folder = folder
        self.address = ""
        self.ready = asyncio.Event()
        self.ended = asyncio.Event()
        self.containers: dict[str, Container] = {}
        self.mounted = False
        self.network: Network | None = None
        self.task: asyncio.Task[None] | None = None
        self.ending = False

    @property
    def name(self) -> str:
        return str(self.seen["metadata"]["name"])

    @property
    def output(self) -> str:
        return "".join(f"{name}: {each.output}" for name, each in self.containers.items())

    async def over(self) -> None:
        """Wait for its end."""
        async with asyncio.timeout(WAIT_SECONDS):
            await self.ended.wait()

    def has(self, labels: dict[str, str]) -> bool:
        return bool(labels.items() <= self.seen["metadata"].get("labels", {}).items())

    def client(self) -> aiohttp.ClientSession:
        """A client inside the pod."""
        assert self.network is not None
        return self.network.client()

    def native_sidecars(self) -> list[Object]:
        return [each for each in self.seen["spec"].get("initContainers", []) if each.get("restartPolicy") == "Always"]


class Node:
    """What runs in a namespace."""

    def __init__(self, api: Api, namespace: str, folder: Path, network: NodeNetwork, tasks: asyncio.TaskGroup) -> None:
        self.network = network
        self.pods: dict[str, Pod] = {}  # by uid; those that were deleted too, for what they said
        self._api = api
        self._namespace = namespace
        self._folder = folder
        self._tasks = tasks
        self._services: dict[str, Object] = {}
        self._changed = asyncio.Condition()
        self._numbers = itertools.count()

    def output(self, name: str) -> str:
        """All that pods whose names begin so have said."""
        return "\n".join(pod.output for pod in self.pods.values() if pod.name.startswith(name))

    def said(self, pod: str, container: str) -> str:
        """What one container of the newest pod of that name has said."""
        (*_, newest) = (each for each in self.pods.values() if each.name == pod)
        return newest.containers[container].output

    def alive(self) -> list[Pod]:
        return [pod for pod in self.pods.values() if not pod.ended.is_set()]

    async def ready(self, name: str, count: int = 1) -> list[Pod]:
        """Wait until so many pods whose names begin so are ready, and no others of them are there."""

        def found() -> list[Pod]:
            return [pod for pod in self.alive() if pod.name.startswith(name)]

        async with asyncio.timeout(WAIT_SECONDS), self._changed:
            await self._changed.wait_for(lambda: [pod.ready.is_set() for pod in found()] == [True] * count)
        return found()

    async def empty(self) -> None:
        """Wait until no pod runs."""
        async with asyncio.timeout(WAIT_SECONDS), self._changed:
            await self._changed.wait_for(lambda: not self.alive())

    async def reachable(self, cluster: SimulatedCluster, namespace: str = "pulsar") -> None:
        """Let pods reach simulated brokers by the names and ports that a StatefulSet's have."""
        for number, broker in enumerate(cluster.brokers):
            address = f"10.2.0.{number + 1}"
            await self.network.forward(address, 8080, partial(dial_machine, urlsplit(broker.web)))
            self._name(f"pulsar-broker-{number}.pulsar-broker", namespace, address)
        self._name("pulsar-broker", namespace, "10.2.0.1")

    def _name(self, name: str, namespace: str, address: str) -> None:
        ends = ("", f".{namespace}", f".{namespace}.svc", f".{namespace}.svc.cluster.local")
        self.network.name(**{name + end: address for end in ends if end or namespace == self._namespace})

    # Services: kube-proxy and DNS

    async def on_service(self, event: str, service: Object) -> None:
        name, spec = service["metadata"]["name"], service["spec"]
        if event == "DELETED":
            self._services.pop(name, None)
            return
        self._services[name] = service
        if spec.get("clusterIP", "None") == "None":
            return
        self._name(name, self._namespace, spec["clusterIP"])
        for port in spec["ports"]:
            await self.network.forward(spec["clusterIP"], port["port"], partial(self._dial_service, name, port["port"]))

    async def _dial_service(self, name: str, number: int) -> socket.socket:
        spec = self._services[name]["spec"]
        (port,) = (each for each in spec["ports"] if each["port"] == number)
        ready = [pod for pod in self.alive() if pod.ready.is_set() and not pod.ending and pod.has(spec["selector"])]
        if not ready:
            raise ConnectionRefusedError(f"no pod behind {name} is ready")
        pod = ready[next(self._numbers) % len(ready)]
        return await self.network.dial(pod.address, _port(pod.seen, port.get("targetPort", number)))

    def _service_variables(self, pod: Object) -> dict[str, str]:
        """As every container has them; those of other Services unless the pod does not want them."""
        found = {"KUBERNETES_SERVICE_HOST": API_ADDRESS, "KUBERNETES_SERVICE_PORT": "443"}
        if pod["spec"].get("enableServiceLinks", True):
            for name, service in self._services.items():
                spec, key = service["spec"], name.upper().replace("-", "_")
                if spec.get("clusterIP", "None") != "None":
                    address, port = spec["clusterIP"], spec["ports"][0]["port"]
                    found |= {
                        f"{key}_SERVICE_HOST": address,
                        f"{key}_SERVICE_PORT": str(port),
                        f"{key}_PORT": f"tcp://{address}:{port}",
                        f"{key}_PORT_{port}_TCP_ADDR": address,
                    }
        return found

    # Pods: scheduler and kubelet

    async def on_config_map(self, event: str, _: Object) -> None:
        """What is in volumes follows; where a ConfigMap has gone, optional ones are empty, and others as they were."""
        for pod in self.alive():
            if event != "ADDED" and pod.mounted:
                with suppress(Refused):
                    await pod.volumes.refresh()

    async def on_pod(self, event: str, seen: Object) -> None:
        uid = seen["metadata"]["uid"]
        if uid not in self.pods:
            if event == "DELETED" or seen.get("status", {}).get("phase") in ("Succeeded", "Failed"):
                return
            if "nodeName" not in seen["spec"]:
                await self._api.bind(seen, NODE)
                return
            self.pods[uid] = pod = Pod(self._api, seen, self._folder / "pods" / uid)
            pod.task = self._tasks.create_task(self._run(pod))
            return
        pod = self.pods[uid]
        if event == "DELETED":
            self._kill(pod)
        elif seen["metadata"].get("deletionTimestamp") and not pod.ending:
            pod.ending = True
            self._tasks.create_task(self._end(pod, seen["metadata"].get("deletionGracePeriodSeconds", GRACE_SECONDS)))

    async def _run(self, pod: Pod) -> None:
        network, pod.address = await asyncio.to_thread(self.network.pod)
        pod.network = network
        try:
            pod.seen["status"]["podIP"] = pod.address
            await pod.volumes.refresh()
            pod.mounted = True
            succeeded = await self._live(pod, network)
            await self._report(pod, "Succeeded" if succeeded else "Failed")
        finally:
            self._kill(pod)
            await asyncio.gather(*(container.ended() for container in pod.containers.values()))
            network.close()
            shutil.rmtree(pod.folder / "volumes", ignore_errors=True)
            pod.ended.set()
            await self._tell()

    async def _live(self, pod: Pod, network: Network) -> bool:
        """From the first init container to the end of the last container; whether all went well."""
        spec = pod.seen["spec"]

        async def begun(container: Object) -> Container:
            name = container["name"]
            pod.containers[name] = made = await start(
                pod.seen,
                container,
                pod.folder / "roots" / name,
                network,
                self.network.hosts,
                pod.volumes.folders,
                self._service_variables(pod.seen),
            )
            return made

        await self._report(pod, "Pending")
        for container in spec.get("initContainers", []):
            made = await begun(container)
            if container.get("restartPolicy") == "Always":
                await self._probed(pod, container, "startupProbe")
                if made.code is not None:  # nothing is started after one that has not
                    return False
            elif await made.ended() != 0:
                return False
        started = [(await begun(container), container) for container in spec["containers"]]
        for _, container in started:
            await self._probed(pod, container, "startupProbe")
            await self._probed(pod, container, "readinessProbe")
        if spec["restartPolicy"] == "Always" and not any(made.code is not None for made, _ in started):
            pod.ready.set()
        await self._report(pod, "Running")
        codes = [await made.ended() for made, _ in started]
        for container in reversed(pod.native_sidecars()):
            await pod.containers[container["name"]].end(GRACE_SECONDS)
        return not any(codes)

    async def _probed(self, pod: Pod, container: Object, kind: str) -> None:
        """Until the probe succeeds, or the container has ended."""
        if kind not in container:
            return
        probe, made = container[kind], pod.containers[container["name"]]
        async with self.network.client() as client:
            while made.code is None:
                if await self._answers(pod, made, probe, client):
                    return
                await asyncio.sleep(PROBE_SECONDS)  # a kubelet asks again too

    async def _answers(self, pod: Pod, made: Container, probe: Object, client: aiohttp.ClientSession) -> bool:
        if "exec" in probe:
            return await made.run(*probe["exec"]["command"]) == 0
        if "httpGet" not in probe:
            raise Unknown(f"a probe by {', '.join(probe)}")
        get = probe["httpGet"]
        url = f"http://{get.get('host', pod.address)}:{_port(pod.seen, get['port'])}{get['path']}"
        with suppress(aiohttp.ClientError):
            async with client.get(url) as answer:
                return answer.status < 400
        return False

    async def _end(self, pod: Pod, grace_seconds: float) -> None:
        """preStop and SIGTERM for containers, then for native sidecars in reverse order; then the pod is deleted."""
        await self._tell()
        sidecars = [each["name"] for each in pod.native_sidecars()]
        specs = {each["name"]: each for each in pod.seen["spec"]["containers"]}
        await asyncio.gather(
            *(_stopped(specs[name], made, grace_seconds) for name, made in pod.containers.items() if name in specs)
        )
        for name in reversed(sidecars):
            if name in pod.containers:
                await pod.containers[name].end(grace_seconds)
        if pod.task is not None:
            await pod.ended.wait()
        with suppress(Refused):
            await self._api.delete(pod.seen)

    def _kill(self, pod: Pod) -> None:
        for container in pod.containers.values():
            container.kill()

    async def _report(self, pod: Pod, phase: str) -> None:
        """Write the pod's status; it may be gone already."""
        ready = str(pod.ready.is_set() and phase == "Running")
        now = {
            "phase": phase,
            "podIP": pod.address,
            "podIPs": [{"ip": pod.address}],
            "conditions": [{"type": kind, "status": ready} for kind in ("Ready", "ContainersReady")],
            "initContainerStatuses": [_status(each, pod) for each in pod.seen["spec"].get("initContainers", [])],
            "containerStatuses": [_status(each, pod) for each in pod.seen["spec"]["containers"]],
        }
        with suppress(Refused):
            await self._api.patch(pod.seen, {"status": now}, subresource="status")
        await self._tell()

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        for pod in self.pods.values():
            self._kill(pod)


async def _stopped(spec: Object, made: Container, grace_seconds: float) -> None:
    if (hook := spec.get("lifecycle", {}).get("preStop")) and made.code is None:
        if "sleep" not in hook:
            raise Unknown(f"preStop by {', '.join(hook)}")
        await asyncio.sleep(min(hook["sleep"]["seconds"], grace_seconds))
    await made.end(grace_seconds)


def _status(container: Object, pod: Pod) -> Object:
    made = pod.containers.get(container["name"])
    state: Object = {"waiting": {"reason": "PodInitializing"}}
    if made is not None:
        state = {"running": {}} if made.code is None else {"terminated": {"exitCode": made.code}}
    return {
        "name": container["name"],
        "image": container.get("image", ""),
        "imageID": "",
        "ready": made is not None and made.code is None,
        "restartCount": 0,
        "state": state,
    }


def _port(pod: Object, port: int | str) -> int:
    """A port by number, or by the name that a container gives it."""
    if isinstance(port, int):
        return port
    containers = [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]
    ports = [each for container in containers for each in container.get("ports", [])]
    (number,) = (each["containerPort"] for each in ports if each.get("name") == port)
    return int(number)


@asynccontextmanager
async def node(server: ApiServer, api: Api, namespace: str, folder: Path) -> AsyncIterator[Node]:
    """A node that runs the pods of a namespace for as long as the block lasts."""
    await api.apply(*_made_by_controllers(server, namespace))
    network = NodeNetwork(folder)
    try:
        async with asyncio.TaskGroup() as tasks:
            one = Node(api, namespace, folder, network, tasks)
            async with serving_logs(api, NODE, one.said), _following(api, namespace, one, tasks):
                await network.forward(API_ADDRESS, 443, partial(dial_machine, urlsplit(server.url)))
                yield one
    except BaseException:
        sys.stdout.write("".join(f"{pod.name} {pod.output[-MOST_SAID:]}\n" for pod in one.pods.values()))
        raise
    finally:
        network.close()


@asynccontextmanager
async def _following(api: Api, namespace: str, one: Node, tasks: asyncio.TaskGroup) -> AsyncIterator[None]:
    """All is in motion; at the end every process is killed."""
    controllers = Controllers(api, namespace)
    followed = [
        tasks.create_task(follow(api, api_version, kind, namespace, handler))
        for api_version, kind, handler in (
            ("v1", "Service", one.on_service),
            ("v1", "ConfigMap", one.on_config_map),
            ("v1", "Pod", one.on_pod),
            ("v1", "Pod", controllers.on_pod),
            ("batch/v1", "Job", controllers.on_job),
            ("apps/v1", "Deployment", controllers.on_deployment),
        )
    ]
    try:
        yield
    finally:
        for task in followed:
            task.cancel()
        one.close()


def _made_by_controllers(server: ApiServer, namespace: str) -> list[Object]:
    """What every namespace has in a cluster with controllers."""
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": namespace}},
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "kube-root-ca.crt", "namespace": namespace},
            "data": {"ca.crt": server.certificates.read_text()},
        },
    ]
