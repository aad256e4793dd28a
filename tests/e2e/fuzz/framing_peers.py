"""HTTP servers that read the same bytes: the sidecar, nginx, HAProxy and Envoy before Jetty, and Jetty itself."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml
from jetty_origin import Origin, serving
from memory_peers import CONFIG
from running_sidecar import merged

from bench.envoy import envoy_program
from bench.places import Place
from bench.processes import free_ports, program, started

WAIT = 5
"""Seconds that each waits for more of a request before it closes the connection."""
LONG = 600
SIDECAR = "pulsar-ingress-proxy"
SIDECAR_9 = "pulsar-ingress-proxy before Jetty 9.4"


@dataclass(frozen=True, slots=True)
class Peer:
    name: str
    port: int
    origin: Origin
    origin_port: int
    """Where what it forwards arrives; its own port if it is the origin."""

    @property
    def is_sidecar(self) -> bool:
        return self.name in (SIDECAR, SIDECAR_9)

    @property
    def is_origin(self) -> bool:
        return self.port == self.origin_port


def nginx_command(place: Place) -> list[str]:
    temporary = "".join(
        f"{what}_temp_path {place.folder}/{what}; " for what in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    config = f"""\
daemon off;
master_process off;
pid {place.folder}/nginx.pid;
error_log stderr crit;
events {{ worker_connections 4000; }}
http {{
  {temporary}
  access_log off;
  client_header_timeout {WAIT}s;
  client_body_timeout {WAIT}s;
  keepalive_timeout {WAIT}s;
  upstream brokers {{ server 127.0.0.1:{place.broker}; keepalive 100; }}
  server {{
    listen 127.0.0.1:{place.port};
    location / {{
      proxy_pass http://brokers;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $http_host;
      proxy_set_header X-Forwarded-For $remote_addr;
    }}
  }}
}}
"""
    return [program("nginx"), "-e", "stderr", "-p", str(place.folder), "-c", place.write("nginx.conf", config)]


def haproxy_command(place: Place) -> list[str]:
    config = f"""\
global
  nbthread 1
defaults
  mode http
  timeout connect 5s
  timeout client {WAIT}s
  timeout http-request {WAIT}s
  timeout http-keep-alive {WAIT}s
  timeout server {WAIT}s
frontend gateway
  bind 127.0.0.1:{place.port}
  option forwardfor
  default_backend brokers
backend brokers
  http-reuse always
  server broker 127.0.0.1:{place.broker}
"""
    return [program("haproxy"), "-db", "-q", "-f", place.write("haproxy.cfg", config)]


def envoy_command(place: Place) -> list[str]:
    def address(port: int) -> dict[str, object]:
        return {"socket_address": {"address": "127.0.0.1", "port_value": port}}

    filters = "type.googleapis.com/envoy.extensions.filters"
    router = {"@type": f"{filters}.http.router.v3.Router", "suppress_envoy_headers": True}
    route = {"match": {"prefix": "/"}, "route": {"cluster": "brokers"}}
    manager = {
        "@type": f"{filters}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "gateway",
        "use_remote_address": True,
        "request_headers_timeout": f"{WAIT}s",
        "stream_idle_timeout": f"{WAIT}s",
        "common_http_protocol_options": {"idle_timeout": f"{WAIT}s"},
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        "http_filters": [{"name": "envoy.filters.http.router", "typed_config": router}],
    }
    chain = {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
    listener = {"name": "gateway", "address": address(place.port), "filter_chains": [chain]}
    endpoints = [{"lb_endpoints": [{"endpoint": {"address": address(place.broker)}}]}]
    brokers = {"name": "brokers", "load_assignment": {"cluster_name": "brokers", "endpoints": endpoints}}
    config = yaml.safe_dump({"static_resources": {"listeners": [listener], "clusters": [brokers]}})
    file = place.write("envoy.yaml", config)
    return [envoy_program(), "--concurrency", "1", "--disable-hot-restart", "-l", "error", "-c", file]


def sidecar_command(place: Place) -> list[str]:
    """As it is without sockets in memory_peers, but for addresses and timeouts."""
    (metrics,) = free_ports(1)
    settings = {
        "bindAddresses": [f"http://127.0.0.1:{place.port}"],
        "brokers": {"webServiceUrl": [f"http://127.0.0.1:{place.broker}"]},
        "metrics": {"address": f"127.0.0.1:{metrics}"},
        "console": {"address": None},
        "timeouts": {"head": WAIT, "request": WAIT, "clientIdle": WAIT, "upstreamIdle": LONG / 2},
    }
    file = place.write("config.yaml", yaml.safe_dump(merged(CONFIG, settings)))
    return [sys.executable, "-m", "pulsar_ingress_proxy", "run", "--config", file]


COMMANDS: dict[str, Callable[[Place], list[str]]] = {
    SIDECAR: sidecar_command,
    "nginx": nginx_command,
    "HAProxy": haproxy_command,
    "Envoy": envoy_command,
}


@contextmanager
def standing(folder: Path) -> Iterator[list[Peer]]:
    """All peers, accepting connections."""
    with ExitStack() as stack:

        def origin(name: str, line: str, proxies: int) -> tuple[Peer, Iterator[int]]:
            place = folder / name
            place.mkdir()
            started_origin = stack.enter_context(serving(line, place, [WAIT] + [LONG] * proxies))
            own, *others = started_origin.ports
            return Peer(name, own, started_origin, own), iter(others)

        def proxy(name: str, command: Callable[[Place], list[str]], before: Origin, origin_port: int) -> Peer:
            (port,) = free_ports(1)
            place = Place(folder / name.replace(" ", "-"), port, origin_port)
            place.folder.mkdir()
            stack.enter_context(started(command(place), port, None, place.folder / "log"))
            return Peer(name, port, before, origin_port)

        jetty, ports = origin("Jetty 12", "5.0", len(COMMANDS))
        older, older_ports = origin("Jetty 9.4", "4.0", 1)
        proxies = [proxy(name, command, jetty.origin, next(ports)) for name, command in COMMANDS.items()]
        yield [*proxies, jetty, older, proxy(SIDECAR_9, sidecar_command, older.origin, next(older_ports))]
