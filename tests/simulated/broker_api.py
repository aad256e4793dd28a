"""Answers over HTTP as Apache Pulsar's brokers give them: a function of a request and the brokers' shared metadata.

Two families: 4.x, as 4.0 is, and 5.x, where apache/pulsar#25851 tied web ports to listeners and gave all redirects one
builder. Left out: TLS ports, web ports of other listeners than the internal one, authorization, peer clusters, load
manager migration, partitioned topics. Ownership is decided in metadata.py; sockets, tokens, compression and faults are
in cluster.py. tests/broker_cases.py compares them with real brokers.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Literal
from urllib.parse import parse_qsl, quote, quote_plus, unquote, unquote_plus

from simulated.metadata import INTERNAL, Assignment, Broker, Family, LoadManager, Metadata, Topic

DOMAINS = ("persistent", "non-persistent")
LOAD_MANAGER_CLASS: Mapping[LoadManager, str] = {
    "modular": "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl",
    "extensible": "org.apache.pulsar.broker.loadbalance.extensions.ExtensibleLoadManagerImpl",
}


@dataclass(frozen=True, slots=True)
class Received:
    """A request as it arrived: target byte for byte, headers in order and spelling (as Latin-1)."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def query(self) -> str:
        return self.target.partition("?")[2]

    def values(self, header: str) -> list[str]:
        return [value for name, value in self.headers if name.lower() == header.lower()]

    def header(self, name: str) -> str | None:
        """The first of that name, as JAX-RS injects it."""
        return next(iter(self.values(name)), None)

    def parameter(self, name: str) -> str | None:
        """The first of that name, decoded, as JAX-RS injects it."""
        return next((value for key, value in parse_qsl(self.query, keep_blank_values=True) if key == name), None)

    def target_with(self, parameters: Mapping[str, str | None]) -> str:
        """The target as JAX-RS rebuilds it, with these query parameters replaced (None: removed)."""
        pairs = [pair.partition("=")[::2] for pair in self.query.split("&") if pair]
        if parameters:
            pairs = [(name, value) for name, value in pairs if unquote_plus(name) not in parameters]
            pairs += [(name, quote_plus(value)) for name, value in parameters.items() if value is not None]
            pairs.sort(key=lambda pair: bucket(pair[0]))
        built = [f"{name}={quote(value, safe='%+=')}" for name, value in pairs]
        return self.path + ("?" + "&".join(built) if built else "")

    @property
    def authoritative(self) -> bool:
        return (self.parameter("authoritative") or "").lower() == "true"

    @property
    def listener_name(self) -> str | None:
        # TopicLookup tests isEmpty, so a query of one blank hides the header.
        return self.parameter("listenerName") or self.header("X-Pulsar-ListenerName") or self.parameter("listenerName")


def bucket(name: str) -> int:
    """Where a small java.util.HashMap keeps a name: replaced parameters come out in that order."""
    code = 0
    for letter in name:
        code = (31 * code + ord(letter)) & 0xFFFFFFFF
    return (code ^ code >> 16) & 15


@dataclass(frozen=True, slots=True)
class Answer:
    status: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    location: str | None = None


def in_json(value: object) -> Answer:
    return Answer(body=json.dumps(value, separators=(",", ":")).encode())


def in_text(text: str, content_type: str = "text/plain") -> Answer:
    return Answer(body=text.encode(), content_type=content_type)


def word(text: str) -> Answer:
    """A text that its resource declares as JSON."""
    return in_text(text, "application/json")


def in_html(status: int) -> Answer:
    """Jetty's own answer if no resource matches."""
    title = HTTPStatus(status).phrase if status < 500 else "Request failed."
    return Answer(
        status,
        f"<html><body><h2>HTTP ERROR {status} {title}</h2></body></html>".encode(),
        "text/html;charset=iso-8859-1",
    )


def refusal(status: int, reason: str) -> Answer:
    return Answer(status, json.dumps({"reason": reason}).encode())


def redirect(location: str) -> Answer:
    return Answer(307, location=location)


@dataclass(frozen=True, slots=True)
class Question:
    """A request at one of the brokers; `path` holds what the route's pattern caught, still encoded."""

    cluster: Metadata
    at: int
    received: Received
    path: Mapping[str, str]

    @property
    def here(self) -> Broker:
        return self.cluster.brokers[self.at]

    @property
    def leads(self) -> bool:
        """PulsarWebResource.isLeaderBroker: with the extensible load manager every broker says so of itself."""
        return self.cluster.load_manager == "extensible" or self.at == self.cluster.leader

    @property
    def scheme(self) -> Literal["http", "https"]:
        """Of the request, as Jetty's ForwardedRequestCustomizer has it."""
        forwarded = re.search(r"proto=\"?https\b", self.received.header("Forwarded") or "", re.IGNORECASE)
        is_https = forwarded or (self.received.header("X-Forwarded-Proto") or "").lower() == "https"
        return "https" if self.cluster.trusts_forwarded and is_https else "http"

    def web_url(self, of: int) -> str | None:
        internal = self.cluster.brokers[of].internal
        return internal.broker_https_url if self.scheme == "https" else internal.broker_http_url

    @property
    def namespace(self) -> str:
        return unquote(self.path["namespace"])

    @property
    def bundle(self) -> str:
        return f"{self.namespace}/{self.path['range']}"

    @property
    def topic(self) -> Topic:
        # The segment is @Encoded and goes through Codec.decode once: %2F is a slash in the name, %252F is not.
        return Topic(self.path.get("domain", "persistent"), self.namespace, unquote_plus(self.path["topic"]))

    def moved(self, to: int, parameters: Mapping[str, str | None]) -> Answer:
        """A redirect of this very request."""
        base = self.web_url(to)
        return redirect(base + self.received.target_with(parameters)) if base else self.no_web_url(to)

    def no_web_url(self, of: int) -> Answer:
        if self.cluster.family == "4.x":
            return refusal(412, "Redirected cluster's service url is not configured.")
        broker = self.cluster.brokers[of].id
        text = f"No {self.scheme} URL configured for broker {broker} on web service listener `{INTERNAL}`"
        return Answer(412, text.encode(), "text/plain")


def truth(value: bool) -> str:
    return str(value).lower()


def lookup(question: Question) -> Answer:
    """TopicLookupBase.internalLookupTopicAsync."""
    cluster, received, topic = question.cluster, question.received, question.topic
    malformed = not re.fullmatch(r"[-=:.\w]+(?:/[-=:.\w]+)+", topic.namespace, re.ASCII)
    if malformed or topic.domain not in DOMAINS or (cluster.family == "5.x" and "/" in topic.local_name):
        return in_html(500)  # an IllegalArgumentException of TopicName or NamespaceName, which nobody maps
    if topic.namespace in cluster.missing_namespaces:
        return refusal(404, "Namespace not found")
    assignment = cluster.assign(topic.bundle, at=question.at, authoritative=received.authoritative)
    if assignment is None:
        return Answer(503)
    target = cluster.brokers[assignment.broker]
    given = received.listener_name
    name = given if given and given.strip() else INTERNAL  # LookupOptions tests isNotBlank
    if assignment.redirect and cluster.family == "5.x":
        # LookupResult does not fail here for a name that the target lacks. It falls back to the listener of the web
        # port, here the internal one, and so it does where the client named none.
        known = name if name in target.listeners else INTERNAL
        parameters = {"authoritative": truth(assignment.authoritative), "listenerName": known}
        return question.moved(assignment.broker, parameters)
    if name not in target.listeners:
        return unknown_listener(cluster, target, name)
    if not assignment.redirect:
        return in_json(lookup_data(cluster.family, target, name))
    base = question.web_url(assignment.broker)
    if base is None:
        return question.no_web_url(assignment.broker)
    location = f"{base}{topic.lookup_path}?authoritative={truth(assignment.authoritative)}"
    if given is not None:
        location += f"&listenerName={given}"  # as it is, and so it may be more than a name, or no URI at all
    if illegal := re.search(r'[\x00-\x20"<>\\^`{|}\x7f]|%(?![0-9A-Fa-f]{2})', location):
        return refusal(412, f"Illegal character in query at index {illegal.start()}: {location}")
    return redirect(location)


def lookup_data(family: Family, owner: Broker, name: str) -> dict[str, str]:
    """LookupData: the name chooses the binary URLs only, the web URLs are those of the port asked."""
    listener = owner.listeners[name]
    fields = {
        "brokerId": owner.id if family == "5.x" else None,
        "brokerUrl": listener.broker_service_url,
        "brokerUrlTls": listener.broker_service_url_tls,
        "httpUrl": owner.internal.broker_http_url,
        "httpUrlTls": owner.internal.broker_https_url,
        "nativeUrl": listener.broker_service_url,
        "brokerUrlSsl": "",  # old C++ clients fail without the key
    }
    return {key: value for key, value in fields.items() if value is not None}


def unknown_listener(cluster: Metadata, owner: Broker, name: str) -> Answer:
    """PIP-95 says 400; a PulsarServerException becomes 500 with its stack trace (RestException)."""
    message = f"the broker do not have {name} listener"
    if cluster.family == "5.x" and cluster.load_manager == "modular":
        message = f"The broker '{owner.id}' does not have '{name}' listener configured."
    return refusal(
        500,
        f"\n --- An unexpected error occurred in the server ---\n\nMessage: {message}\n\nStacktrace:\n\n"
        f"org.apache.pulsar.broker.PulsarServerException: {message}\n"
        "\tat org.apache.pulsar.broker.namespace.NamespaceService.findBrokerServiceUrl(NamespaceService.java)\n"
        "\tat java.base/java.util.concurrent.CompletableFuture.postComplete(CompletableFuture.java)\n",
    )


def bundle_range(question: Question) -> Answer:
    return Answer(body=question.topic.bundle_range.encode())


def done(question: Question) -> Answer:
    """The answer of the responsible broker: its id and the request, so that a replay can be checked."""
    received = question.received
    if received.method != "GET" and not received.body:
        return Answer(204)
    body = received.body.decode("utf-8", "replace")
    return in_json({"broker": question.here.id, "method": received.method, "body": body})


def at_owner(question: Question) -> Answer:
    return to_owner(question) or done(question)


def schema(question: Question) -> Answer:
    return to_owner(question) or in_json(SCHEMA)


def to_owner(question: Question) -> Answer | None:
    """PulsarWebResource.validateTopicOwnership, and its like in TopicsBase, before most calls about one topic."""
    cluster, received, topic = question.cluster, question.received, question.topic
    if topic.namespace in cluster.missing_namespaces:
        return refusal(404, "Namespace not found")
    assignment = cluster.assign(topic.bundle, at=question.at, authoritative=received.authoritative)
    if assignment is not None and assignment.broker == question.at:
        return None
    if assignment is None or (cluster.family == "4.x" and question.web_url(assignment.broker) is None):
        return refusal(412, f"Failed to find ownership for topic:{topic}")
    # REST produce on 4.x leaves the query alone, so an unowned bundle goes round in circles.
    if cluster.family == "4.x" and received.path.startswith("/topics/"):
        return question.moved(assignment.broker, {})
    return question.moved(assignment.broker, {"authoritative": authoritative(question, assignment)})


def authoritative(question: Question, assignment: Assignment) -> str | None:
    # LookupResult.toRedirectUri of 5.x removes the parameter where the bundle has an owner.
    return None if question.cluster.family == "5.x" and not assignment.redirect else truth(question.leads)


def unload(question: Question) -> Answer:
    """NamespacesBase.internalUnloadNamespaceBundleAsync: by the leader if a destination is named, then by the owner."""
    cluster = question.cluster
    modular = cluster.load_manager == "modular"
    if modular and question.received.parameter("destinationBroker") and not question.leads:
        return question.moved(cluster.leader, {"authoritative": "false"})
    moved = to_owner_of_bundle(question)
    if moved is None:
        cluster.owners.pop(question.bundle, None)
    return moved or Answer(204)


def at_owner_of_bundle(question: Question) -> Answer:
    return to_owner_of_bundle(question) or done(question)


def to_owner_of_bundle(question: Question) -> Answer | None:
    """PulsarWebResource.validateNamespaceBundleOwnershipAsync."""
    owner = question.cluster.owners.get(question.bundle, question.at)
    if owner == question.at:
        return None
    parameters = {"authoritative": authoritative(question, Assignment(owner))}
    modular = question.cluster.load_manager == "modular"
    return question.moved(owner, {**parameters, "destinationBroker": None} if modular else parameters)


def elsewhere(question: Question) -> Answer | None:
    """PulsarWebResource.maybeRedirectToBroker: to the default web URL of the broker named, the query untouched."""
    wanted = unquote(question.path.get("broker", "")) or question.received.parameter("brokerId") or question.here.id
    ids = [broker.id for broker in question.cluster.brokers]
    broker_id = re.sub("^https?://", "", wanted)
    if broker_id == question.here.id:
        return None
    if broker_id not in ids:
        return refusal(404, f"Broker id '{wanted}' not found in available brokers.")
    return question.moved(ids.index(broker_id), {})


def health(question: Question) -> Answer:
    return elsewhere(question) or word("ok")


def owned_namespaces(question: Question) -> Answer:
    status = {"broker_assignment": "shared", "is_controlled": False, "is_active": True}
    owned = {bundle: status for bundle, owner in question.cluster.owners.items() if owner == question.at}
    return elsewhere(question) or in_json(owned)


def worker_of(function: str, brokers: int) -> int:
    return zlib.crc32(function.encode()) % brokers


def at_worker(question: Question) -> Answer:
    """FunctionRuntimeManager: host and port of the worker that runs the function, the query untouched."""
    function = f"{question.namespace}/{question.path['function']}"
    worker = worker_of(function, len(question.cluster.brokers))
    return done(question) if worker == question.at else question.moved(worker, {})


def topics(question: Question) -> Answer:
    if question.namespace in question.cluster.missing_namespaces:
        return refusal(404, "Namespace does not exist")
    return in_json([])


def brokers(question: Question) -> Answer:
    return in_json([question.cluster.brokers[n].id for n in sorted(question.cluster.alive)])


def leader(question: Question) -> Answer:
    leading = question.cluster.brokers[question.cluster.leader]
    return in_json({"brokerId": leading.id, "serviceUrl": leading.internal.broker_http_url})


def runtime_configuration(question: Question) -> Answer:
    configuration = {
        "advertisedAddress": question.here.name,
        "advertisedListeners": question.here.advertised_listeners,
        "bindAddresses": "",
        "brokerServicePort": "6650",
        "clusterName": "pulsar",
        "internalListenerName": INTERNAL,
        "loadManagerClassName": LOAD_MANAGER_CLASS[question.cluster.load_manager],
        "webServicePort": "8080",
    }
    return in_json(configuration)


def load_report(question: Question) -> Answer:
    """LocalBrokerData of the broker asked; the extensible load manager has none."""
    if question.cluster.load_manager == "extensible":
        return refusal(500, "java.lang.UnsupportedOperationException")
    internal = question.here.internal
    report = {
        "webServiceUrl": internal.broker_http_url,
        "webServiceUrlTls": internal.broker_https_url,
        "pulsarServiceUrl": internal.broker_service_url,
        "pulsarServiceUrlTls": internal.broker_service_url_tls,
        "advertisedListeners": {name: at.published() for name, at in question.here.listeners.items()},
        "loadManagerClassName": LOAD_MANAGER_CLASS["modular"],
    }
    return in_json(report)


def to_metrics(question: Question) -> Answer:
    """Jetty's redirect of a context's path: 9.4 makes it absolute, of the Host that it was asked by."""
    if question.cluster.family == "4.x":
        return Answer(302, location=f"{question.scheme}://{question.received.header('Host')}/metrics/")
    return Answer(301, location="/metrics/")


def metrics(question: Question) -> Answer:
    owned = list(question.cluster.owners.values()).count(question.at)
    return in_text(
        f'# TYPE pulsar_bundles_count gauge\npulsar_bundles_count{{cluster="pulsar"}} {owned}\n',
        "text/plain; version=0.0.4; charset=utf-8",
    )


NAMESPACE = r"(?P<namespace>[^/]+/[^/]+)"
ANY_TOPIC = rf"(?P<domain>[^/]+)/{NAMESPACE}/(?P<topic>[^/]+)"
TOPIC = rf"(?P<domain>(?:non-)?persistent)/{NAMESPACE}/(?P<topic>[^/]+)"
TOPIC_V1 = r"(?P<domain>(?:non-)?persistent)/(?P<namespace>[^/]+/[^/]+/[^/]+)/(?P<topic>[^/]+)"
SCHEMA = {"version": 0, "type": "BYTES", "timestamp": 0, "data": "", "properties": {}}

# The first whose method and path match. An empty method stands for all.
ROUTES: tuple[tuple[str, str, Callable[[Question], Answer]], ...] = (
    ("GET", rf"/lookup/v2/topic/{ANY_TOPIC}", lookup),
    ("GET", rf"/lookup/v2/topic/{TOPIC}/bundle", bundle_range),
    ("GET", rf"/admin/v2/{TOPIC}/partitions", lambda question: in_json({"partitions": 0, "deleted": False})),
    ("GET", rf"/admin/v2/namespaces/{NAMESPACE}/topics", topics),
    ("GET", rf"/admin/v2/schemas/{NAMESPACE}/(?P<topic>[^/]+)/schema(?:/\d+)?", schema),
    ("", rf"/admin/v2/{TOPIC}(?:/.*)?", at_owner),
    ("POST", rf"/topics/{TOPIC}(?:/partitions/\d+)?", at_owner),
    ("PUT", rf"/admin/v2/namespaces/{NAMESPACE}/(?P<range>0x[^/]+)/unload", unload),
    ("PUT", rf"/admin/v2/namespaces/{NAMESPACE}/(?P<range>0x[^/]+)/split", at_owner_of_bundle),
    ("POST", rf"/admin/v2/namespaces/{NAMESPACE}/(?P<range>0x[^/]+)/clearBacklog", at_owner_of_bundle),
    ("GET", r"/admin/v2/brokers/health", health),
    ("GET", r"/admin/v2/brokers/[^/]+/(?P<broker>[^/]+)/ownedNamespaces", owned_namespaces),
    ("GET", rf"/admin/v3/functions/{NAMESPACE}", lambda question: in_json([])),
    ("", rf"/admin/v3/functions/{NAMESPACE}/(?P<function>[^/]+)(?:/.*)?", at_worker),
    ("GET", r"/admin/v2/brokers(?:/pulsar)?", brokers),
    ("GET", r"/admin/v2/brokers/leaderBroker", leader),
    ("GET", r"/admin/v2/brokers/ready", lambda question: word("ok")),
    ("GET", r"/admin/v2/brokers/configuration/runtime", runtime_configuration),
    ("GET", r"/admin/v2/broker-stats/load-report", load_report),
    ("GET", r"/status\.html", lambda question: in_text("OK")),
    ("GET", r"/metrics", to_metrics),
    ("GET", r"/metrics/", metrics),
)
# Up to 4.1 only; Go and C++ clients still look them up by this path.
ROUTES_V1 = (
    ("GET", rf"/lookup/v2/destination/{TOPIC_V1}", lookup),
    ("GET", rf"/lookup/v2/destination/{TOPIC_V1}/bundle", bundle_range),
)


def answer(cluster: Metadata, at: int, received: Received) -> Answer:
    """The answer of the broker `at`. It may become a bundle's owner by this, as in a lookup."""
    asked = "GET" if received.method == "HEAD" else received.method  # as JAX-RS does
    status = 404
    for method, pattern, handler in ROUTES + (ROUTES_V1 if cluster.family == "4.x" else ()):
        if found := re.fullmatch(pattern, received.path):
            if method in ("", asked):
                return handler(Question(cluster, at, received, found.groupdict()))
            status = 405
    return in_html(status)
