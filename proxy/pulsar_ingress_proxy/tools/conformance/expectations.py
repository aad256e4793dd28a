"""What should happen to a client of one ingress, by the config and the decisions of `explain`. Pure."""

import re
from dataclasses import dataclass
from urllib.parse import quote

from pulsar_ingress_proxy.routing.snapshot import Snapshot
from pulsar_ingress_proxy.syntax.listeners import BINARY_SCHEMES, ServiceUrl, parse_service_url
from pulsar_ingress_proxy.tools.explain import CannotExplain, Explanation, OwnAnswer, explain

TOPIC = "persistent://public/default/pulsar-ingress-proxy-conformance"
_TOPIC = re.compile(r"((?:non-)?persistent)://([^/\s]+)/([^/\s]+)/([^/\s]+)")


@dataclass(frozen=True, slots=True)
class CheckedIngress:
    """An ingress as a client comes to it: its URL, and the listener whose addresses the client should get."""

    url: ServiceUrl
    name: str | None
    listener: str
    snapshot: Snapshot
    topic: str = TOPIC

    @property
    def is_binary(self) -> bool:
        return self.url.scheme in BINARY_SCHEMES

    @property
    def lookup_target(self) -> str:
        return f"/lookup/v2/topic/{_path(self.topic)}"

    @property
    def partitions_target(self) -> str:
        """Of the topic's partition metadata: all clients ask for it."""
        return f"/admin/v2/{_path(self.topic)}/partitions"

    def refusal(self, url: ServiceUrl, target: str) -> OwnAnswer | None:
        """The sidecar's refusal of this request, by the config."""
        return _explained(self.snapshot, url, target).refusal


def expect(text: str, snapshot: Snapshot, topic: str = TOPIC) -> CheckedIngress:
    """The ingress of a client's service URL; raises CannotExplain if the config has none for it."""
    try:
        url = parse_service_url(text)
    except ValueError as fault:
        raise CannotExplain(f"--url {fault}") from None
    by_config = _explained(snapshot, url, f"/lookup/v2/topic/{_path(topic)}")
    # Without TLS the binary protocol carries no name: the sidecar may not see the ingress whose host this is.
    has_ingress = by_config.ingress is not None or snapshot.ingresses.by_host(url.host) is not None
    if not has_ingress and by_config.rule != "bind" and any(snapshot.ingresses):
        known = ", ".join(f"{ingress.name} ({', '.join(ingress.hosts)})" for ingress in snapshot.ingresses)
        raise CannotExplain(f"--url {url}: no ingress has the host '{url.host}'; there are {known}")
    if by_config.listener is None:
        raise CannotExplain(f"--url {url}: no rule selects a listener for its clients; `explain` shows why")
    return CheckedIngress(url, by_config.ingress, by_config.listener, snapshot, topic)


def _explained(snapshot: Snapshot, url: ServiceUrl, target: str) -> Explanation:
    try:
        return explain(snapshot, f"{url}{'' if url.scheme in BINARY_SCHEMES else target}", [])
    except CannotExplain as fault:
        raise CannotExplain(f"--url {url}: {fault}") from None


def _path(topic: str) -> str:
    found = _TOPIC.fullmatch(topic)
    if found is None:
        raise CannotExplain(f"--topic '{topic}' is not a topic: write persistent://tenant/namespace/topic")
    return "/".join(quote(part, safe="") for part in found.groups())
