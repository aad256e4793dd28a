"""The admin API, asked of a broker that is not the one to answer: where it leads without and with the sidecar.

Every call is made to a bystander. Most are for the owner, the broker that has the topic; one is for the leader.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

import pytest
from brokers import Broker
from cluster import Cluster
from gateways import URL, sidecar, straight
from networks import Answer
from ownership import WHOLE, give, owner

AT_THE_END = {"ledgerId": -1, "entryId": -1}
STRING = {"type": "STRING", "schema": "", "properties": {}}
INGRESSES: dict[str, dict[str, object]] = {
    "rewrite": {"admin": "rewrite"},
    "follow": {"admin": "follow"},
    "follow without bodies": {"admin": "follow", "replayBytes": 10},
}


@dataclass(frozen=True, slots=True)
class Parts:
    """Who is who for one topic."""

    topic: str
    bystander: Broker
    owner: Broker
    leader: Broker

    def filled(self, path: str) -> str:
        return path.format(
            topic=self.topic.replace("://", "/"),
            namespace="/".join(self.topic.split("/")[2:4]),
            name=self.topic.split("/", 2)[2],
            bundle=WHOLE,
            owner=urlsplit(self.owner.web).netloc,
            bystander=urlsplit(self.bystander.web).netloc,
        )


@dataclass(frozen=True, slots=True)
class Call:
    """What a client asks for, what the broker that is the one to answer says, and what can be seen afterwards."""

    method: str
    path: str
    body: object = None
    status: int = 200
    says: str = ""
    then: tuple[str, str] | None = None  # what the owner is asked afterwards, and what stands in its answer
    to: Literal["owner", "leader"] = "owner"  # whom the bystander redirects to


CALLS = {
    # PulsarWebResource.validateTopicOwnership
    "topic stats": Call("GET", "/admin/v2/{topic}/stats", says='"ownerBroker":"{owner}"'),
    "with a query": Call("GET", "/admin/v2/{topic}/stats?getPreciseBacklog=true", says='"ownerBroker":"{owner}"'),
    "with a space in its name": Call("GET", "/admin/v2/{topic}%201/subscriptions", says="[]"),
    "internal stats": Call("GET", "/admin/v2/{topic}/internalStats", says='"lastConfirmedEntry"'),
    "subscriptions": Call("GET", "/admin/v2/{topic}/subscriptions", says='["kept"]'),
    "last message": Call("GET", "/admin/v2/{topic}/lastMessageId", says='"ledgerId"'),
    "create a topic": Call(
        "PUT", "/admin/v2/{topic}-new", status=204, then=("/admin/v2/{topic}-new/stats", '"ownerBroker":"{owner}"')
    ),
    "set properties": Call(
        "PUT", "/admin/v2/{topic}/properties", {"a": "b"}, 204, then=("/admin/v2/{topic}/properties", '"a":"b"')
    ),
    "create a subscription": Call(
        "PUT", "/admin/v2/{topic}/subscription/new", AT_THE_END, 204, then=("/admin/v2/{topic}/subscriptions", '"new"')
    ),
    "reset a cursor": Call("POST", "/admin/v2/{topic}/subscription/kept/resetcursor", AT_THE_END, 204),
    "skip messages": Call("POST", "/admin/v2/{topic}/subscription/kept/skip_all", status=204),
    "delete a subscription": Call(
        "DELETE", "/admin/v2/{topic}/subscription/kept", status=204, then=("/admin/v2/{topic}/subscriptions", "[]")
    ),
    "compact": Call("PUT", "/admin/v2/{topic}/compaction", status=204),
    "terminate": Call("POST", "/admin/v2/{topic}/terminate", says='"ledgerId"'),
    "unload a topic": Call("PUT", "/admin/v2/{topic}/unload", status=204),
    "delete a topic": Call("DELETE", "/admin/v2/{topic}", status=204, then=("/admin/v2/{topic}/stats", "not found")),
    "topics in memory": Call("GET", "/admin/v2/non-persistent/{namespace}/{bundle}", says="["),
    "post a schema": Call(
        "POST", "/admin/v2/schemas/{name}/schema", STRING, then=("/admin/v2/schemas/{name}/schema", '"STRING"')
    ),
    # validateNamespaceBundleOwnership
    "clear a backlog": Call("POST", "/admin/v2/namespaces/{namespace}/{bundle}/clearBacklog", status=204),
    "unsubscribe": Call(
        "POST",
        "/admin/v2/namespaces/{namespace}/{bundle}/unsubscribe/kept",
        status=204,
        then=("/admin/v2/{topic}/subscriptions", "[]"),
    ),
    "split a bundle": Call(
        "PUT",
        "/admin/v2/namespaces/{namespace}/{bundle}/split",
        status=204,
        then=("/admin/v2/namespaces/{namespace}/bundles", '"numBundles":2'),
    ),
    "unload a bundle": Call("PUT", "/admin/v2/namespaces/{namespace}/{bundle}/unload", status=204),
    # NamespacesBase.validateLeaderBroker, of the modular load manager; then the leader redirects to the owner
    "move a bundle": Call(
        "PUT",
        "/admin/v2/namespaces/{namespace}/{bundle}/unload?destinationBroker={bystander}",
        status=204,
        to="leader",
    ),
    # PulsarWebResource.maybeRedirectToBroker
    "health of a broker": Call("GET", "/admin/v2/brokers/health?brokerId={owner}", says="ok"),
    "namespaces of a broker": Call(
        "GET", "/admin/v2/brokers/c1/{owner}/ownedNamespaces", says='"{namespace}/{bundle}"'
    ),
    # TopicsBase
    "produce by REST": Call(
        "POST",
        "/topics/{topic}",
        {"messages": [{"payload": "hello"}]},
        says='"messageId"',
        then=("/admin/v2/{topic}/internalStats", '"numberOfEntries":1'),
    ),
    "produce a large message": Call(
        "POST",
        "/topics/{topic}",
        {"messages": [{"payload": "x" * 3_000_000}]},
        says='"messageId"',
        then=("/admin/v2/{topic}/internalStats", '"numberOfEntries":1'),
    ),
}


@pytest.fixture
def parts(cluster: Cluster, namespace: str) -> Parts:
    """Two topics, one with a subscription, on a broker that is neither the bystander nor the leader."""
    leader = cluster.leader()
    bystander, owner = (broker for broker in cluster.brokers if broker != leader)
    topic = f"persistent://{namespace}/orders"
    give(cluster, topic, owner)
    parts = Parts(topic, bystander, owner, leader)
    for path, body in (
        ("/admin/v2/{topic}", None),
        ("/admin/v2/{topic}%201", None),
        ("/admin/v2/{topic}/subscription/kept", AT_THE_END),
    ):
        made = cluster.request("PUT", owner.web + parts.filled(path), body)
        assert made.status == 204, made
    return parts


@pytest.fixture(scope="module")
def ingress(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[None]:
    """The ingress leads straight to the bystander, or to the sidecar, as INGRESSES has it."""
    if request.param == "straight":
        with straight(cluster, next(broker for broker in cluster.brokers if broker != cluster.leader())):
            yield
    else:
        with sidecar(cluster, redirects=INGRESSES[request.param]):
            yield


def ask(cluster: Cluster, call: Call, url: str) -> Answer:
    """From outside."""
    body = None if call.body is None else json.dumps(call.body).encode()
    headers = {} if body is None else {"Content-Type": "application/json"}
    return cluster.networks.outside.request(call.method, url, body, headers)


def expect(cluster: Cluster, call: Call, parts: Parts, answer: Answer) -> None:
    """That the right broker has answered, and has done what it was asked for."""
    assert answer.status == call.status, answer
    assert parts.filled(call.says) in answer.body.decode(), answer
    if call.then is not None:
        path, text = map(parts.filled, call.then)
        afterwards = cluster.request("GET", parts.owner.web + path)
        assert text in afterwards.body.decode(), afterwards


@pytest.mark.parametrize("ingress", ["straight"], indirect=True, ids=[""])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.usefixtures("ingress")
def test_admin_redirect_without_the_sidecar_leads_to_an_internal_address(
    cluster: Cluster, parts: Parts, call: Call
) -> None:
    path = parts.filled(call.path)
    answer = ask(cluster, call, URL + path)
    assert answer.status == 307, answer
    to = parts.leader if call.to == "leader" else parts.owner
    assert answer.headers["Location"].startswith(to.web + urlsplit(path).path)


@pytest.mark.parametrize("ingress", ["rewrite"], indirect=True)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.usefixtures("ingress")
def test_rewritten_admin_redirect_leads_to_the_broker_that_answers(cluster: Cluster, parts: Parts, call: Call) -> None:
    path = parts.filled(call.path)
    answer = ask(cluster, call, parts.bystander.external_web + path)
    for to in [parts.leader, parts.owner] if call.to == "leader" else [parts.owner]:
        assert answer.status == 307, answer
        assert answer.headers["Location"].startswith(to.external_web + urlsplit(path).path)
        answer = ask(cluster, call, answer.headers["Location"])
    expect(cluster, call, parts, answer)


@pytest.mark.parametrize("ingress", ["follow"], indirect=True)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.usefixtures("ingress")
def test_followed_admin_redirect_is_not_seen_by_the_client(cluster: Cluster, parts: Parts, call: Call) -> None:
    answer = ask(cluster, call, parts.bystander.external_web + parts.filled(call.path))
    expect(cluster, call, parts, answer)


@pytest.mark.parametrize("ingress", ["rewrite"], indirect=True)
@pytest.mark.usefixtures("ingress")
def test_authoritative_redirect_reaches_the_broker_that_it_names(cluster: Cluster, namespace: str) -> None:
    """Nobody has the bundle: the leader chooses who, and a broker that is asked with authority takes it in any case."""
    topic = f"persistent://{namespace}/orders"
    call = Call("PUT", f"/admin/v2/{topic.replace('://', '/')}")
    asked = [cluster.leader().external_web + call.path]
    while (answer := ask(cluster, call, asked[-1])).status == 307:
        asked.append(answer.headers["Location"])
    assert answer.status == 204, answer
    assert urlsplit(asked[-1]).hostname == owner(cluster, topic).external_name, asked


@pytest.mark.parametrize("ingress", ["rewrite"], indirect=True)
@pytest.mark.usefixtures("ingress")
def test_each_broker_answers_for_itself_at_its_own_address(cluster: Cluster) -> None:
    """Of its configuration, which it redirects to nobody."""
    call = Call("GET", "/admin/v2/brokers/configuration/runtime")
    for broker in cluster.brokers:
        answer = ask(cluster, call, broker.external_web + call.path)
        assert json.loads(answer.body)["advertisedAddress"] == broker.name


@pytest.mark.parametrize("ingress", ["follow without bodies"], indirect=True, ids=[""])
@pytest.mark.usefixtures("ingress")
def test_redirect_is_rewritten_when_the_body_is_too_large_to_replay(cluster: Cluster, parts: Parts) -> None:
    call = CALLS["produce by REST"]
    answer = ask(cluster, call, parts.bystander.external_web + parts.filled(call.path))
    assert answer.status == 307, answer
    assert answer.headers["Location"] == parts.owner.external_web + parts.filled(call.path)
    expect(cluster, call, parts, ask(cluster, call, answer.headers["Location"]))
