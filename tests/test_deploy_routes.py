"""The routes in deploy/: they lead to the sidecar, and where it is not there to refuse they let no more through."""

import re
from collections.abc import Iterator

from deployed import NEEDED, config, documents

from pulsar_ingress_proxy.routing.paths import classify

TOPIC = "persistent/public/default/a%2Fb"
PATHS = [
    ("GET", f"/lookup/v2/topic/{TOPIC}"),
    ("GET", f"/admin/v2/{TOPIC}/partitions"),
    ("GET", f"/admin/v2/non-{TOPIC}/partitions"),
    ("GET", "/admin/v2/namespaces/public/default/topics"),
    ("GET", "/admin/v2/schemas/public/default/orders/schema"),
    ("GET", "/admin/v2/schemas/public/default/orders/schema/3"),
    ("PUT", f"/admin/v2/{TOPIC}/partitions"),
    ("POST", "/admin/v2/schemas/public/default/orders/schema"),
    ("DELETE", "/admin/v2/schemas/public/default/orders/schema"),
    ("GET", f"/admin/v2/{TOPIC}/stats"),
    ("GET", "/admin/v2/clusters"),
    ("GET", "/admin/v2/namespaces/public"),
    ("GET", "/admin/v2/namespaces/public/default/more/topics"),
    ("DELETE", f"/admin/v2/{TOPIC}"),
    ("GET", "/admin/v3/functions/public/default"),
    ("GET", "/topics/persistent/public/default/orders"),
    ("GET", "/ws/v2/producer/persistent/public/default/orders"),
    ("GET", "/metrics/"),
    ("GET", "/lookupx"),
    ("GET", "/"),
]


def nginx_matches(path: str) -> Iterator[tuple[str | None, str]]:
    (values,) = documents(path)
    snippet = values["controller"]["config"]["http-snippet"]
    for kind, place in re.findall(r"location (~ )?\"?(/\w+/|\^.*?)\"? \{", snippet):
        yield "GET", place if kind else re.escape(place) + ".*"  # @brokers refuses other methods


def test_routes_past_the_sidecar_let_through_only_what_clients_need() -> None:
    matches = list(nginx_matches("ingress-nginx/ingress-nginx-values.yaml"))
    assert matches
    for method, asked in PATHS:
        passes = any(verb in (None, method) and re.fullmatch(pattern, asked) for verb, pattern in matches)
        assert passes == (classify(method, asked).area in NEEDED), (method, asked)


def test_nginx_leads_to_the_sidecar_on_loopback() -> None:
    (values,) = documents("ingress-nginx/ingress-nginx-values.yaml")
    (socket,) = config("ingress-nginx/configmap.yaml").bind_addresses
    targets = set(re.findall(r"proxy_pass http://([^$;]+);", values["controller"]["config"]["http-snippet"]))
    assert targets == {socket.address}
