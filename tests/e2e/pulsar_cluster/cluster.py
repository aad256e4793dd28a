"""A Pulsar cluster in a world of its own: ZooKeeper with a bookie, and brokers, each a JVM.

Run as a program it starts one, says how to reach it, and waits for Ctrl-C.
"""

import argparse
import json
import os
import signal
import ssl
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPException
from pathlib import Path
from urllib.parse import urlsplit

import artifacts
import jvm
from brokers import CLUSTER, HOST, LOAD_MANAGERS, METADATA, PARTNER_HOST, Broker, Options
from children import Child, Failed, tail
from credentials import Authority, Tokens
from networks import GATEWAY, Answer, TwoNetworks, two_networks

HEAP = 300  # MiB
READY_SECONDS = 180
END_SECONDS = 240
"""A broker of the extensible load manager, the last of three to restart, was seen not to have ended after 60."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster that runs."""

    options: Options
    networks: TwoNetworks
    brokers: list[Broker]
    tokens: Tokens
    authority: Authority
    _children: ExitStack
    _processes: dict[str, tuple[Child, tuple[str | Path, ...]]] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """For files of the tests too; it goes with the cluster."""
        return self.networks.folder

    @contextmanager
    def started(self, name: str, *command: str | Path) -> Iterator[Child]:
        """A process inside, killed at the end; its log is shown with those of the brokers."""
        child = self._start(name, *command)
        try:
            yield child
        finally:
            child.kill()

    def request(
        self,
        method: str,
        url: str,
        body: object = None,
        role: str | None = "admin",
        tls: ssl.SSLContext | None = None,
        seconds: float = 30,
    ) -> Answer:
        """One exchange by HTTP from inside, with a role's token where the cluster wants one; a body is JSON."""
        headers = {} if body is None else {"Content-Type": "application/json"}
        if self.options.authorization and role is not None:
            headers["Authorization"] = f"Bearer {self.tokens.of(role)}"
        content = None if body is None else json.dumps(body).encode()
        return self.networks.inside.request(method, url, content, headers, tls, seconds)

    def broker(self, name: str | None) -> Broker:
        """The broker that is called so, inside or outside."""
        return next(
            broker for broker in self.brokers if name in (broker.name, broker.external_name, broker.partner_name)
        )

    def leader(self) -> Broker:
        """The broker that decides who takes a bundle that nobody has."""
        said = json.loads(self.request("GET", f"{self.brokers[0].web}/admin/v2/brokers/leaderBroker").body)
        return self.broker(urlsplit(said["serviceUrl"]).hostname)

    def restart(self, broker: Broker) -> None:
        """End a broker as an operator would, and start it again: it hands its topics over first."""
        name = f"broker-{broker.number}"
        child, command = self._processes[name]
        child.end(END_SECONDS)
        again = self._start(name, *command)
        again.until(partial(_is_ready, self, broker), "become ready again", READY_SECONDS)

    @contextmanager
    def paused(self, broker: Broker) -> Iterator[None]:
        """A broker that answers nothing, for less time than its session with ZooKeeper lasts."""
        child, _ = self._processes[f"broker-{broker.number}"]
        os.kill(child.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(child.pid, signal.SIGCONT)

    def tails(self, since: float = 0) -> str:
        """The last lines of each log that was written to since then."""
        logs = sorted(log for log in self.folder.glob("*.log") if log.stat().st_mtime >= since)
        return "\n".join(map(tail, logs))

    def _start(self, name: str, *command: str | Path, environment: dict[str, str] | None = None) -> Child:
        log = self.folder / f"{name}.log"
        child = Child(name, self.networks.inside.command(*command), log, environment)
        self._children.callback(child.kill)
        self._processes[name] = child, command
        return child


@contextmanager
def running(options: Options, say: Callable[[str], None] = lambda _: None) -> Iterator[Cluster]:
    """A cluster, ready: every broker serves, knows the others, and there is a leader."""
    jvm.java_version()
    classpath = artifacts.classpath(options.release)
    brokers = [Broker(number) for number in range(options.brokers)]
    inside = {broker.name: broker.address for broker in brokers}
    outside = dict.fromkeys((HOST, *(broker.external_name for broker in brokers)), GATEWAY)
    if options.partner:
        outside |= dict.fromkeys((PARTNER_HOST, *(broker.partner_name for broker in brokers)), GATEWAY)
    with two_networks(inside, outside) as networks, ExitStack() as children:
        cluster = Cluster(options, networks, brokers, Tokens(), Authority(), children)
        began = time.monotonic()

        def tell(what: str) -> None:
            say(f"{time.monotonic() - began:5.1f} s  {what}")

        try:
            with _shared_classes(options.release) as (shared, record):
                _start_storage(cluster, classpath, shared)
                tell("ZooKeeper and BookKeeper serve, and hold the cluster's metadata")
                jvms = _start_brokers(cluster, classpath, shared, record)
                for is_so, what in ((_is_ready, "become ready"), (_knows_all, "found all brokers and a leader")):
                    for broker, child in zip(brokers, jvms, strict=True):
                        child.until(partial(is_so, cluster, broker), what, READY_SECONDS)
                tell("the brokers serve and know each other")
                yield cluster
                if record is not None:
                    tell("the first broker writes down its classes, for a faster start next time")
                    with suppress(Failed):
                        jvms[0].end()
        except Failed as failed:
            raise Failed(f"{str(failed).splitlines()[0]}\n{cluster.tails()}") from None


def _start_storage(cluster: Cluster, classpath: str, shared: Path | None) -> None:
    """One JVM for ZooKeeper and a bookie, as `pulsar standalone` has it, and one that writes the cluster's metadata."""
    # A bookie would write nothing to a disk that is fuller than 95 of 100, and tests need little of it.
    full = "diskUsageThreshold=0.995\ndiskUsageWarnThreshold=0.99\n"
    (cluster.folder / "standalone.conf").write_text(f"clusterName={CLUSTER}\n{full}")
    storage = cluster._start(
        "storage",
        *jvm.command(
            classpath, "org.apache.pulsar.PulsarStandaloneStarter", "--config", "standalone.conf", "--no-broker",
            "--no-functions-worker", "--no-stream-storage", "--zookeeper-dir", "zookeeper", "--zookeeper-port", "2181",
            "--bookkeeper-dir", "bookkeeper", heap=HEAP, shared=shared,
        ),
        environment={"PULSAR_STANDALONE_USE_ZOOKEEPER": "1"},
    )  # fmt: skip
    storage.until(lambda: _has_bookie(cluster), "shown a bookie")
    broker = cluster.brokers[0]
    setup = cluster._start(
        "metadata",
        *jvm.command(
            classpath, "org.apache.pulsar.PulsarClusterMetadataSetup", "--cluster", CLUSTER, "--metadata-store",
            METADATA, "--configuration-metadata-store", METADATA, "--web-service-url", broker.web,
            "--broker-service-url", broker.service, heap=HEAP, shared=shared,
        ),
    )  # fmt: skip
    if setup.ended(120) != 0:
        raise Failed(f"the cluster's metadata could not be written\n{setup.tail()}")
    if cluster.options.transactions:
        coordinators = cluster._start(
            "coordinators",
            *jvm.command(
                classpath, "org.apache.pulsar.PulsarTransactionCoordinatorMetadataSetup", "--cluster", CLUSTER,
                "--configuration-store", METADATA, "--initial-num-transaction-coordinators", "3", heap=HEAP,
                shared=shared,
            ),
        )  # fmt: skip
        if coordinators.ended(120) != 0:
            raise Failed(f"the coordinators' metadata could not be written\n{coordinators.tail()}")


def _start_brokers(cluster: Cluster, classpath: str, shared: Path | None, record: Path | None) -> list[Child]:
    options = cluster.options
    if options.tls:
        names = [broker.name for broker in cluster.brokers]
        external = [broker.external_name for broker in cluster.brokers]
        cluster.authority.write(cluster.folder, "broker", *names, *external)
    started = []
    for broker in cluster.brokers:
        name = f"broker-{broker.number}"
        conf = broker.conf(options, cluster.folder, cluster.tokens)
        (cluster.folder / f"{name}.conf").write_text("".join(f"{key}={value}\n" for key, value in conf.items()))
        main = ("org.apache.pulsar.PulsarBrokerStarter", "--broker-conf", f"{name}.conf")
        recording = record if broker.number == 0 else None
        started.append(cluster._start(name, *jvm.command(classpath, *main, heap=HEAP, shared=shared, record=recording)))
    routes = [route for broker in cluster.brokers for route in broker.routes(options)]
    gateway = cluster._start("routes", sys.executable, Path(__file__).with_name("tcp_routes.py"), *routes)
    gateway.says("forwarding")
    return started


def _is_ready(cluster: Cluster, broker: Broker) -> bool:
    try:
        return cluster.request("GET", f"{broker.web}/admin/v2/brokers/ready", seconds=5).status == 200
    except (OSError, HTTPException):
        return False


def _knows_all(cluster: Cluster, broker: Broker) -> bool:
    known = cluster.request("GET", f"{broker.web}/admin/v2/brokers/{CLUSTER}")
    leader = cluster.request("GET", f"{broker.web}/admin/v2/brokers/leaderBroker")
    return leader.status == known.status == 200 and len(json.loads(known.body)) == len(cluster.brokers)


def _has_bookie(cluster: Cluster) -> bool:
    """ZooKeeper's `dump` lists the nodes that live as long as who made them: a bookie makes one when it serves."""
    try:
        with cluster.networks.inside.connect("localhost", 2181) as connection, connection.makefile("rb") as answer:
            connection.sendall(b"dump")
            return b"\t/ledgers/available/" in answer.read()
    except OSError:
        return False


@contextmanager
def _shared_classes(release: artifacts.Release) -> Iterator[tuple[Path | None, Path | None]]:
    """The archive of loaded classes, which halves the time to start; or where a broker is to write it when it ends."""
    archive = artifacts.cache(release) / f"classes-{jvm.java_version()}.jsa"
    if archive.exists():
        yield archive, None
        return
    unfinished = archive.with_name(f".{os.getpid()}-{archive.name}")
    try:
        yield None, unfinished
        if unfinished.exists():
            os.replace(unfinished, archive)
    finally:
        unfinished.unlink(missing_ok=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Start a Pulsar cluster and wait for Ctrl-C.")
    parser.add_argument("--version", dest="line", choices=sorted(artifacts.RELEASES), default=artifacts.DEFAULT)
    parser.add_argument("--load-manager", choices=sorted(LOAD_MANAGERS), default="modular")
    parser.add_argument("--tls", action="store_true", help="TLS ports beside the plain ones")
    parser.add_argument("--authorization", action="store_true", help="tokens; `admin` is the superuser")
    options = Options(**vars(parser.parse_args()))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with running(options, _say) as cluster:
            _say(_described(cluster))
            with suppress(KeyboardInterrupt):
                signal.pause()
    except (Failed, jvm.Missing) as failed:
        sys.exit(str(failed))
    except KeyboardInterrupt:
        sys.exit(130)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _described(cluster: Cluster) -> str:
    lines = [f"Pulsar {cluster.options.release.version}, {cluster.options.load_manager} load manager"]
    lines += [f"inside   {broker.web}  {broker.service}" for broker in cluster.brokers]
    lines += [f"outside  {broker.external_service}" for broker in cluster.brokers]
    lines += [f"ingress  http://{HOST}:8080, once something listens there inside, at {GATEWAY}:8080"]
    if cluster.options.authorization:
        lines.append(f"token    {cluster.tokens.of('admin')}")
    lines += [f"logs     {cluster.folder}"]
    networks = (cluster.networks.inside, cluster.networks.outside)
    lines += [f"run      {' '.join(network.command('curl', '…'))}" for network in networks]
    return "\n".join([*lines, "Ctrl-C ends it"])


if __name__ == "__main__":
    main()
