"""How long discovery takes to reconcile all objects of a large cluster, and how long it blocks the event loop.

    python -m bench.discovery [--ingresses N] [--brokers N] [--rounds N]

The objects are put into the store one by one first, as a list and a watch would. Reconciling runs in a thread, as it
does in the sidecar, while the loop records its longest delay.
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import Iterator
from typing import Any

from pulsar_ingress_proxy.config import load_mapping
from pulsar_ingress_proxy.discovery.reconciler.store import ObjectStore, PodIdentity

NAMESPACE = "pulsar"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ingresses", type=int, default=1000)
    parser.add_argument("--brokers", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    asyncio.run(measure(options.ingresses, options.brokers, options.rounds))


async def measure(ingresses: int, brokers: int, rounds: int) -> None:
    store = filled(ingresses, brokers)
    took, held = [], []
    for _ in range(rounds):
        began = time.perf_counter()
        work = asyncio.create_task(asyncio.to_thread(store.reconciler()))
        longest = 0.0
        while not work.done():
            before = time.perf_counter()
            await asyncio.sleep(0)
            longest = max(longest, time.perf_counter() - before)
        took.append(time.perf_counter() - began)
        held.append(longest)
        found = work.result().discovered
        assert (len(found.ingresses), len(found.brokers)) == (ingresses, brokers)
    print(f"{ingresses} ingresses, {brokers} brokers, {rounds} rounds")
    print(f"reconciled in       {_text(took)}")
    print(f"loop held at most   {_text(held)}")


def _text(seconds: list[float]) -> str:
    low, middle, high = (1000 * value for value in (min(seconds), statistics.median(seconds), max(seconds)))
    return f"{middle:6.1f} ms ({low:.1f} to {high:.1f})"


def filled(ingresses: int, brokers: int) -> ObjectStore:
    config = {
        "bindAddresses": ["http://127.0.0.1:8080"],
        "brokers": {"webServiceUrl": [f"http://broker.{NAMESPACE}:8080"]},
        "kubernetes": {"enabled": True, "namespaces": [NAMESPACE], "gateways": ["nginx"]},
    }
    store = ObjectStore(load_mapping(config), PodIdentity(NAMESPACE))
    for obj in objects(ingresses, brokers):
        store.put(obj)
    return store


def objects(ingresses: int, brokers: int) -> Iterator[dict[str, Any]]:
    """A StatefulSet of brokers with one Service each, and ingresses that lead to one broker or to all."""
    ports = [{"name": "http", "port": 8080}]
    yield _object("v1", "Service", "broker", {"selector": {"app": "broker"}, "ports": ports, "clusterIP": "None"})
    for n in range(brokers):
        labels = {"app": "broker", "statefulset.kubernetes.io/pod-name": f"broker-{n}"}
        spec = {"hostname": f"broker-{n}", "subdomain": "broker", "containers": [{"ports": [{"containerPort": 8080}]}]}
        pod = _object("v1", "Pod", f"broker-{n}", spec)
        pod["metadata"]["labels"] = labels
        address = f"10.0.{n // 200}.{n % 200 + 1}"
        pod["status"] = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
        yield pod
        yield _object("v1", "Service", f"broker-{n}", {"selector": labels, "ports": ports})
    for n in range(ingresses):
        backend = {"service": {"name": f"broker-{n}" if n < brokers else "broker", "port": {"name": "http"}}}
        rule = {"host": f"h{n}.example.com", "http": {"paths": [{"path": "/", "backend": backend}]}}
        ingress = _object("networking.k8s.io/v1", "Ingress", f"i{n}", {"ingressClassName": "nginx", "rules": [rule]})
        ingress["metadata"]["annotations"] = {"pulsar-ingress-proxy/listener": "external"}
        yield ingress


def _object(version: str, kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


if __name__ == "__main__":
    main()
