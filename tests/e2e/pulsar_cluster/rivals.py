"""The products that may stand at the gateway: the sidecar, Pulsar Proxy, nginx, HAProxy and Envoy.

Each has the best configuration that we can write for it, in configs/, and does all that it can of every scenario.
"""

import json
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import artifacts
import jvm
from brokers import HOST, HOST_PORT, PARTNER_HOST
from cluster import HEAP, Cluster

HERE = Path(__file__).parent
PUBLIC = f"http://{HOST}:{HOST_PORT}"
PARTNER = f"http://{PARTNER_HOST}:{HOST_PORT}"
BINARY_PORT = 6600
METRICS = "http://localhost:9090"


@dataclass(frozen=True, slots=True)
class Product:
    """One of them: its files in configs/, the command that runs it inside, and how it counts lookups."""

    name: str
    files: tuple[str, ...]
    command: Callable[[Cluster, Path], list[str | Path]]
    version: Callable[[], str]
    counts: Callable[[Cluster], dict[str, int]] | None = None  # lookups by listener, "" for those that have none
    binary: bool = False  # made for clients that come with pulsar:// URLs

    def url(self, host: str) -> str:
        """How a client best comes to it."""
        return f"pulsar://{host}:{BINARY_PORT}" if self.binary else f"http://{host}:{HOST_PORT}"

    def lines(self) -> int:
        """Of configuration, without comments and blanks."""
        texts = [(HERE / "configs" / file).read_text() for file in self.files]
        return sum(1 for text in texts for line in text.splitlines() if not re.match(r"\s*(#|--|$)", line))


@contextmanager
def standing(product: Product, cluster: Cluster) -> Iterator[Product]:
    """The ingress leads to that product, which accepts connections; beside it runs the cluster's DNS."""
    folder = cluster.folder / product.name.replace(" ", "-").lower()
    folder.mkdir(exist_ok=True)
    for file in product.files:
        text = (HERE / "configs" / file).read_text()
        secrets = {"{secret_key}": cluster.tokens.secret_key, "{proxy_token}": cluster.tokens.of("proxy")}
        for placeholder, secret in secrets.items():
            text = text.replace(placeholder, secret)
        (folder / file).write_text(text)
    assert not _accepts(cluster), "something already listens at the ingress"
    hosts = Path("/etc/netns", cluster.networks.inside.name, "hosts")
    with (
        cluster.started("names", sys.executable, HERE / "names_server.py", "127.0.0.1", hosts) as names,
        cluster.started(folder.name, *product.command(cluster, folder)) as child,
    ):
        names.says("answering")
        child.until(lambda: _accepts(cluster), "accepted connections", 60)
        yield product


def _accepts(cluster: Cluster) -> bool:
    try:
        cluster.networks.outside.connect(HOST, HOST_PORT).close()
    except OSError:
        return False
    return True


def program(name: str) -> Path:
    """From the environment that runs this, or of the system."""
    beside = Path(sys.executable).with_name(name)
    found = beside if beside.exists() else shutil.which(name, path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
    if found is None:
        raise jvm.Missing(f"{name} is missing: `sh bench/setup.sh` installs nginx and HAProxy, `make e2e` Envoy")
    return Path(found)


def _said_version(name: str, option: str) -> str:
    """The last on its first line: Envoy begins with its path, which may have one too; nginx says it on stderr."""
    done = subprocess.run([program(name), option], capture_output=True, text=True, check=True, timeout=20)
    return str(re.findall(r"\d+\.\d+\.\d+", (done.stdout + done.stderr).strip().partition("\n")[0])[-1])


def _sidecar(cluster: Cluster, folder: Path) -> list[str | Path]:
    return [program("pulsar-ingress-proxy"), "run", "--config", folder / "sidecar.yaml"]


def _pulsar_proxy(cluster: Cluster, folder: Path) -> list[str | Path]:
    release = cluster.options.release
    conf = (folder / "pulsar-proxy.conf").read_text()
    if cluster.options.authorization:
        conf += (folder / "pulsar-proxy-tokens.conf").read_text()
    (folder / "proxy.conf").write_text(conf)
    main = ("org.apache.pulsar.proxy.server.ProxyServiceStarter", "--config", str(folder / "proxy.conf"))
    return [*jvm.command(artifacts.classpath(release), *main, heap=HEAP)]


def _nginx(cluster: Cluster, folder: Path) -> list[str | Path]:
    # Without a master, whose workers would outlive it where it is killed.
    return [program("nginx"), "-e", "stderr", "-p", folder, "-c", folder / "nginx.conf", "-g", "master_process off;"]


def _haproxy(cluster: Cluster, folder: Path) -> list[str | Path]:
    return [program("haproxy"), "-db", "-f", folder / "haproxy.cfg"]


def _envoy(cluster: Cluster, folder: Path) -> list[str | Path]:
    return [
        program("envoy"),
        "--concurrency",
        "1",
        "--disable-hot-restart",
        "-l",
        "warning",
        "-c",
        folder / "envoy.yaml",
    ]


def _counted_by_sidecar(cluster: Cluster) -> dict[str, int]:
    text = cluster.networks.inside.request("GET", f"{METRICS}/metrics").body.decode()
    hits = re.findall(r'^pulsar_ingress_listener_hits_total\{.*listener="(\w+)".*\} (\S+)$', text, re.M)
    misses = re.findall(r'^pulsar_ingress_listener_misses_total\{.*reason="no-rule".*\} (\S+)$', text, re.M)
    counted = {"": sum(int(float(count)) for count in misses)}
    for listener, count in hits:
        counted[listener] = counted.get(listener, 0) + int(float(count))
    return counted


def _counted_by_haproxy(cluster: Cluster) -> dict[str, int]:
    with cluster.networks.inside.connect("localhost", 9090) as connection:
        connection.sendall(b"show table lookups\n")
        connection.shutdown(socket.SHUT_WR)
        with connection.makefile() as answer:
            rows = re.findall(r"key=(\w+) .*http_req_cnt=(\d+)", answer.read())
    return {"" if key == "none" else key: int(count) for key, count in rows}


def _counted_by_envoy(cluster: Cluster) -> dict[str, int]:
    url = f"{METRICS}/stats?format=json&filter=vcluster.lookups.upstream_rq_total"
    stats = json.loads(cluster.networks.inside.request("GET", url).body)["stats"]
    ingresses = {"public": "external", "partner": "partner", "nobody": ""}
    return {ingresses[stat["name"].split(".")[1]]: stat["value"] for stat in stats}


SIDECAR = Product(
    "the sidecar", ("sidecar.yaml",), _sidecar, lambda: version("pulsar-ingress-proxy"), _counted_by_sidecar
)
PULSAR_PROXY = Product(
    "Pulsar Proxy",
    ("pulsar-proxy.conf", "pulsar-proxy-tokens.conf"),
    _pulsar_proxy,
    lambda: artifacts.RELEASES[artifacts.DEFAULT].version,
    binary=True,
)
NGINX = Product("nginx", ("nginx.conf",), _nginx, lambda: _said_version("nginx", "-v"))
HAPROXY = Product("HAProxy", ("haproxy.cfg",), _haproxy, lambda: _said_version("haproxy", "-v"), _counted_by_haproxy)
ENVOY = Product(
    "Envoy with Lua", ("envoy.yaml",), _envoy, lambda: _said_version("envoy", "--version"), _counted_by_envoy
)
PRODUCTS = (SIDECAR, PULSAR_PROXY, NGINX, HAPROXY, ENVOY)
