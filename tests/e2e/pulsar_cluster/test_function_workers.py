"""Function workers apart from brokers: what only their leader does, asked of another."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException

import artifacts
import jvm
import pytest
import yaml
from brokers import CLUSTER, HOST_PORT, METADATA, Broker
from children import Child
from cluster import HEAP, Cluster
from gateways import URL, sidecar
from networks import GATEWAY

pytestmark = pytest.mark.full
PORT = 8090  # of workers, outside
LEADER = "/admin/v2/worker/cluster/leader"

CALLS = {
    "drain": ("PUT", "/admin/v2/worker/leader/drain?workerId=nobody", 400),
    "status of a drain": ("GET", "/admin/v2/worker/leader/drain?workerId=nobody", 200),
}


@dataclass(frozen=True, slots=True)
class Worker:
    """On a broker's machine, at a port of its own."""

    beside: Broker

    @property
    def port(self) -> int:
        return 6750 + self.beside.number

    @property
    def web(self) -> str:
        return f"http://{self.beside.name}:{self.port}"

    @property
    def external_web(self) -> str:
        return f"http://{self.beside.external_name}:{PORT}"

    def conf(self) -> dict[str, object]:
        return {
            "workerId": self.beside.name,
            "workerHostname": self.beside.name,
            "workerPort": self.port,
            "configurationMetadataStoreUrl": METADATA,
            "pulsarServiceUrl": self.beside.service,
            "pulsarWebServiceUrl": self.beside.web,
            "pulsarFunctionsCluster": CLUSTER,
            "pulsarFunctionsNamespace": "public/functions",
            "functionMetadataTopicName": "metadata",
            "clusterCoordinationTopicName": "coordinate",
            "functionAssignmentTopicName": "assignments",
            "numFunctionPackageReplicas": 1,
            "downloadDirectory": "functions",
            "schedulerClassName": "org.apache.pulsar.functions.worker.scheduler.RoundRobinScheduler",
            "functionRuntimeFactoryClassName": "org.apache.pulsar.functions.runtime.thread.ThreadRuntimeFactory",
            "functionRuntimeFactoryConfigs": {"threadGroupName": "functions"},
            "failureCheckFreqMs": 30000,
            "rescheduleTimeoutMs": 60000,
            "initialBrokerReconnectMaxRetries": 60,
            "assignmentWriteMaxRetries": 60,
            "instanceLivenessCheckFreqMs": 30000,
            "topicCompactionFrequencySec": 1800,
            "workerListProbeIntervalSec": 60,
        }


@dataclass(frozen=True, slots=True)
class Workers:
    leader: Worker
    other: Worker


@pytest.fixture(scope="module")
def workers(cluster: Cluster) -> Iterator[Workers]:
    """Two, one after the other: two that come at once fall over each other's topics."""
    both = [Worker(broker) for broker in cluster.brokers[:2]]
    with ExitStack() as started:
        for number, worker in enumerate(both):
            child = started.enter_context(running(cluster, worker))
            child.until(partial(is_joined, cluster, worker, number + 1), "joined the others, and found a leader")
        leader = json.loads(cluster.request("GET", f"{both[0].web}{LEADER}").body)["port"]
        yield Workers(*sorted(both, key=lambda worker: worker.port != leader))


@contextmanager
def running(cluster: Cluster, worker: Worker) -> Iterator[Child]:
    name = f"worker-{worker.beside.number}"
    (cluster.folder / f"{name}.yml").write_text(yaml.safe_dump(worker.conf()))
    main = ("org.apache.pulsar.functions.worker.FunctionWorkerStarter", "-c", f"{name}.yml")
    command = jvm.command(artifacts.classpath(cluster.options.release), *main, heap=HEAP)
    with cluster.started(name, *command) as child:
        yield child


def is_joined(cluster: Cluster, worker: Worker, workers: int) -> bool:
    try:
        known = cluster.request("GET", f"{worker.web}/admin/v2/worker/cluster")
        leader = cluster.request("GET", worker.web + LEADER)
        if known.status != 200 or leader.status != 200 or len(json.loads(known.body)) != workers:
            return False
        leads = json.loads(leader.body)
        return cluster.request("GET", f"http://{leads['workerHostname']}:{leads['port']}{LEADER}/ready").status == 200
    except (OSError, HTTPException):
        return False


@pytest.fixture
def keys(cluster: Cluster, workers: Workers) -> dict[str, object]:
    """Of the sidecar's config. Workers are on brokers' machines, so the ports tell who is who."""
    both = (workers.leader, workers.other)
    brokers = [
        {"broker": f"{broker.name}:8080", "listeners": f"internal:{broker.web}, external:{broker.external_web}"}
        for broker in cluster.brokers
    ]
    beside = [
        {
            "broker": f"{worker.beside.name}:{worker.port}",
            "listeners": f"internal:{worker.web}, external:{worker.external_web}",
        }
        for worker in both
    ]
    return {
        "functionWorkers": {"webServiceUrl": [worker.web for worker in both]},
        "advertisedListeners": brokers + beside,
        "bindAddresses": [f"http://{GATEWAY}:{HOST_PORT}", f"http://{GATEWAY}:{PORT}"],
    }


def test_worker_redirect_without_the_sidecar_leads_to_an_internal_address(cluster: Cluster, workers: Workers) -> None:
    for name, (method, path, _) in CALLS.items():
        answer = cluster.request(method, workers.other.web + path)
        assert answer.status == 307, (name, answer)
        assert answer.headers["Location"] == workers.leader.web + path, name


def test_rewritten_worker_redirect_leads_to_the_leader(
    cluster: Cluster, workers: Workers, keys: dict[str, object]
) -> None:
    with sidecar(cluster, **keys):
        for name, (method, path, status) in CALLS.items():
            answer = cluster.networks.outside.request(method, workers.other.external_web + path)
            assert answer.status == 307, (name, answer)
            assert answer.headers["Location"] == workers.leader.external_web + path, name
            assert cluster.networks.outside.request(method, answer.headers["Location"]).status == status, name


def test_followed_worker_redirect_succeeds_whichever_worker_is_asked(
    cluster: Cluster, workers: Workers, keys: dict[str, object]
) -> None:
    """They are asked in turn."""
    with sidecar(cluster, **keys, redirects={"admin": "follow"}):
        for name, (method, path, status) in CALLS.items():
            for _ in range(2):
                assert cluster.networks.outside.request(method, URL + path).status == status, name
