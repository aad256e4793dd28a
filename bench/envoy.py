"""Envoy in the comparison, with the Lua filter that people write for this job (it has no route feature for it)."""

import sys
from pathlib import Path

import yaml

from bench.places import Place
from bench.processes import program
from bench.traffic import HOST, LISTENER

_LUA = f"""\
function envoy_on_request(handle)
  handle:headers():replace("x-pulsar-listenername", "{LISTENER}")
end
function envoy_on_response(handle)
  local location = handle:headers():get("location")
  if location then
    local broker, rest = location:match("^http://pulsar%-broker%-(%d+)%.[^/:]+:?%d*/(.*)$")
    if broker then
      handle:headers():replace("location", "https://broker-" .. broker .. ".{HOST}/" .. rest)
    end
  end
end
"""
_FILTERS = "type.googleapis.com/envoy.extensions.filters"


def envoy_config(place: Place, most: int | None = None) -> dict[str, object]:
    """`most` requests at a time, others get 503."""
    route = {"match": {"prefix": "/"}, "route": {"cluster": "brokers"}}
    lua = {"@type": f"{_FILTERS}.http.lua.v3.Lua", "default_source_code": {"inline_string": _LUA}}
    router = {"@type": f"{_FILTERS}.http.router.v3.Router", "suppress_envoy_headers": True}
    manager = {
        "@type": f"{_FILTERS}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "gateway",
        "generate_request_id": False,  # nginx and HAProxy make none
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        "http_filters": [
            {"name": "envoy.filters.http.lua", "typed_config": lua},
            {"name": "envoy.filters.http.router", "typed_config": router},
        ],
    }
    chain = {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
    listener = {"name": "gateway", "address": _address(place.port), "filter_chains": [chain]}
    endpoints = [{"lb_endpoints": [{"endpoint": {"address": _address(place.broker)}}]}]
    brokers: dict[str, object] = {
        "name": "brokers",
        "load_assignment": {"cluster_name": "brokers", "endpoints": endpoints},
    }
    if most is not None:
        limits = {"max_requests": most, "max_connections": most, "max_pending_requests": most}
        brokers["circuit_breakers"] = {"thresholds": [limits]}
    return {"static_resources": {"listeners": [listener], "clusters": [brokers]}}


def _address(port: int) -> dict[str, object]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def envoy_program() -> str:
    """Installed from the package index into this environment."""
    return program("envoy", Path(sys.executable).parent)


def envoy_command(place: Place, most: int | None = None) -> list[str]:
    config = place.write("envoy.yaml", yaml.safe_dump(envoy_config(place, most)))
    return [envoy_program(), "--concurrency", "1", "--disable-hot-restart", "-l", "error", "-c", config]
