"""The proxies of the comparison, each configured to do the job on one core without logging requests.

A command runs in the foreground. The function that returns it also writes the proxy's config.
"""

import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from bench.envoy import envoy_command, envoy_program
from bench.places import Place
from bench.processes import program
from bench.sidecar import sidecar_command
from bench.traffic import HOST, LISTENER
from pulsar_ingress_proxy import __version__


@dataclass(frozen=True, slots=True)
class Peer:
    name: str
    command: Callable[[Place], list[str]]
    version: Callable[[], str]


def nginx_config(place: Place, most: int | None = None) -> str:
    """The two lines that the README shows, with keep-alive on both sides; `most` requests at a time, others get 503."""
    limits = ("", "") if most is None else ("limit_conn_zone $server_name zone=all:64k;", f"limit_conn all {most};")
    temporary = "\n".join(
        f"  {what}_temp_path {place.folder}/{what};" for what in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    return f"""\
daemon off;
worker_processes 1;
worker_rlimit_nofile 10000;
pid {place.folder}/nginx.pid;
error_log stderr crit;
events {{ worker_connections 10000; }}
http {{
{temporary}
  access_log off;
  keepalive_requests 1000000000;
  {limits[0]}
  upstream brokers {{ server 127.0.0.1:{place.broker}; keepalive 4096; keepalive_requests 1000000000; }}
  server {{
    listen 127.0.0.1:{place.port};
    {limits[1]}
    location / {{
      proxy_pass http://brokers;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $http_host;
      proxy_set_header X-Pulsar-ListenerName {LISTENER};
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
      proxy_redirect ~^http://pulsar-broker-(\\d+)\\.[^/:]+(?::\\d+)?/(.*)$ https://broker-$1.{HOST}/$2;
    }}
  }}
}}
"""


def nginx_command(place: Place, most: int | None = None) -> list[str]:
    config = place.write("nginx.conf", nginx_config(place, most))
    return [program("nginx"), "-e", "stderr", "-p", str(place.folder), "-c", config]


def haproxy_config(place: Place) -> str:
    return f"""\
global
  nbthread 1
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
frontend gateway
  bind 127.0.0.1:{place.port}
  http-request set-header X-Pulsar-ListenerName {LISTENER}
  option forwardfor
  http-response replace-header Location '^http://pulsar-broker-([0-9]+)\\.[^/:]+(:[0-9]+)?/(.*)$' \
'https://broker-\\1.{HOST}/\\3'
  default_backend brokers
backend brokers
  http-reuse always
  server broker 127.0.0.1:{place.broker}
"""


def haproxy_command(place: Place) -> list[str]:
    return [program("haproxy"), "-db", "-q", "-f", place.write("haproxy.cfg", haproxy_config(place))]


def _says(*command: str) -> str:
    """A program's version from its output; nginx prints it to stderr, Envoy after an empty line."""
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)
    return version_in(done.stdout + done.stderr)


def version_in(said: str) -> str:
    """The last number on the first line: Envoy's line begins with its path, which may contain one, too."""
    return str(re.findall(r"\d+\.\d+\.\d+", said.strip().partition("\n")[0])[-1])


NGINX = Peer("nginx", nginx_command, lambda: _says(program("nginx"), "-v"))
HAPROXY = Peer("HAProxy", haproxy_command, lambda: _says(program("haproxy"), "-v"))
ENVOY = Peer("Envoy with Lua", envoy_command, lambda: _says(envoy_program(), "--version"))
OURS = Peer("pulsar-ingress-proxy", sidecar_command, lambda: __version__)
FOLLOWING = Peer("pulsar-ingress-proxy, following", partial(sidecar_command, redirects="follow"), lambda: __version__)
BLOCKING = Peer("pulsar-ingress-proxy, blocking", partial(sidecar_command, leaks="block"), lambda: __version__)
RIVALS = (NGINX, HAPROXY, ENVOY)
PEERS = (*RIVALS, OURS, FOLLOWING, BLOCKING)
