"""Rule by rule: the words say what `select` did, whatever the request and the config."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pulsar_ingress_proxy.config import load_mapping
from pulsar_ingress_proxy.routing.decisions import decide
from pulsar_ingress_proxy.routing.discovered import Discovered
from pulsar_ingress_proxy.routing.paths import Target
from pulsar_ingress_proxy.routing.requests import Request
from pulsar_ingress_proxy.routing.selection import select
from pulsar_ingress_proxy.routing.snapshot import Snapshot, build
from pulsar_ingress_proxy.syntax.authorities import Authority
from pulsar_ingress_proxy.tools.reasoning import ORDER, steps, suggestion

LOOKUP = Target("lookup", "lookup")
HOST = Authority("pulsar.example.com", None)
KEYS: dict[str, Any] = {
    "brokers": {"webServiceUrl": ["http://b:8080"]},
    "ingresses": [
        {"name": "public", "hosts": ["pulsar.example.com", "*.pulsar.example.com"], "listener": "external"},
        {"name": "tight", "hosts": ["tight.example"], "listener": "external", "allowedListeners": ["partner"]},
    ],
    "advertisedListeners": [
        {"broker": "b-0", "listeners": "internal:http://b-0:8080,external:https://b-0.pulsar.example.com,"
         "partner:https://b-0.partner.example"}
    ],
}  # fmt: skip


def picture(**keys: Any) -> Snapshot:
    return build(load_mapping({**KEYS, **keys}))


def explained(request: Request, **keys: Any) -> dict[str, tuple[str, str]]:
    snapshot = picture(**keys)
    return {step.rule: (step.outcome, step.text) for step in steps(request, select(request, snapshot), snapshot)}


def asking(host: Authority | None = HOST, **more: Any) -> Request:
    return Request(LOOKUP, host, **more)


ELSEWHERE = Authority("else.where", 80)
IGNORE, REJECT = {"clientListenerName": "ignore"}, {"clientListenerName": "reject"}


@pytest.mark.parametrize(
    ("request_", "keys", "rule", "outcome", "words"),
    [
        (asking(), {}, "query", "passed-over", "no listenerName parameter"),
        (asking(query_names=(" ",)), {}, "query", "passed-over", "the listenerName parameter is blank"),
        (asking(), {}, "header", "passed-over", "no X-Pulsar-ListenerName header"),
        (asking(), {}, "bind", "passed-over", "is not bound to a listener"),
        (asking(), {}, "ingress", "decided", "Host pulsar.example.com matches ingress 'public'"),
        (asking(), {}, "default", "not-reached", "ingress came first; lookupListenerName is not set"),
        (asking(query_names=("external",)), {}, "query", "passed-over", "the same as rule ingress gives"),
        (asking(query_names=("partner",)), {}, "query", "decided", "names 'partner'"),
        (asking(query_names=("partner",)), {}, "ingress", "not-reached", "query came first; Host"),
        (asking(query_names=("nobodys",)), {}, "query", "refused", "unknown-listener: no broker has"),
        (asking(query_names=("internal",)), {}, "query", "refused", "not-allowed: "),
        (asking(query_names=("partner",)), IGNORE, "query", "passed-over", "clientListenerName is ignore"),
        (asking(query_names=("partner",)), REJECT, "query", "refused", "client-named: "),
        (
            asking(query_names=("external",), header_names=("partner",)),
            {},
            "header",
            "passed-over",
            "query comes first",
        ),
        (asking(header_names=("a", "b")), {}, "header", "refused", "conflicting-names: "),
        (asking(bind_listener="partner"), {}, "bind", "decided", "is bound to listener 'partner'"),
        (asking(ELSEWHERE), {}, "ingress", "passed-over", "no ingress has the host else.where:80"),
        (asking(ELSEWHERE, forwarded_host=HOST), {}, "ingress", "decided", "X-Forwarded-Host pulsar.example.com"),
        (asking(None), {}, "ingress", "passed-over", "no host to match"),
        (asking(None), {}, "default", "passed-over", "lookupListenerName is not set"),
        (asking(None), {"lookupListenerName": "external"}, "default", "decided", "lookupListenerName is 'external'"),
    ],
)
def test_each_rule_explains_its_outcome(
    request_: Request, keys: dict[str, Any], rule: str, outcome: str, words: str
) -> None:
    found, text = explained(request_, **keys)[rule]
    assert found == outcome
    assert words in text


NAMES = st.sampled_from(["external", "partner", "internal", "nobodys", " ", "", "snöw"])
HOSTS = st.sampled_from([None, HOST, Authority("tight.example", None), ELSEWHERE])
REQUESTS = st.builds(
    Request,
    st.sampled_from([LOOKUP, Target("admin", "admin")]),
    HOSTS,
    HOSTS,
    st.sampled_from(["http", "https"]),
    st.sampled_from([None, "external", "partner"]),
    st.lists(NAMES, max_size=2).map(tuple),
    st.lists(NAMES, max_size=2).map(tuple),
)
SNAPSHOTS = [
    picture(clientListenerName=policy, lookupListenerName=default, miss=miss)
    for policy in ("honor", "ignore", "reject")
    for default in (None, "external")
    for miss in ("forward", "reject")
]


@given(REQUESTS, st.sampled_from(SNAPSHOTS))
def test_explained_steps_agree_with_the_selection(request: Request, snapshot: Snapshot) -> None:
    selection = select(request, snapshot)
    found = steps(request, selection, snapshot)
    assert tuple(step.rule for step in found) == ORDER
    place = ORDER.index(selection.rule) if selection.rule != "none" else len(ORDER)
    outcomes = [step.outcome for step in found]
    assert set(outcomes[:place]) <= {"passed-over"}
    assert set(outcomes[place + 1 :]) <= {"not-reached"}
    if selection.rule != "none":
        assert outcomes[place] == ("refused" if selection.refusal is not None else "decided")
        decider = found[place].text
        assert selection.listener is None or f"'{selection.listener}'" in decider
    assert all(step.text for step in found)


def pasted(text: str, keys: dict[str, Any]) -> dict[str, Any]:
    """A config with a suggestion put in: an ingress takes the place of the one with its name, or is appended."""
    found = yaml.safe_load(text)
    ingresses = {ingress["name"]: ingress for ingress in [*keys["ingresses"], *found.pop("ingresses", [])]}
    return {**keys, **found, "ingresses": list(ingresses.values())}


ADMIN = Request(Target("admin", "admin"), Authority("closed.example", None))


@pytest.mark.parametrize("default", [None, "external"])
@pytest.mark.parametrize("policy", ["honor", "reject"])
@pytest.mark.parametrize(
    "request_",
    [
        asking(ELSEWHERE),
        asking(ELSEWHERE, forwarded_host=Authority("old-name.example.org", None)),
        asking(None),
        asking(Authority("[::1]", 80)),
        asking(Authority("tight.example", None), query_names=("external-2",)),
        asking(Authority("tight.example", None), header_names=("internal",)),
        asking(Authority("closed.example", None), query_names=("partner",)),
        asking(query_names=("nobodys",)),
        asking(ELSEWHERE, header_names=("nobodys",)),
        asking(ELSEWHERE, header_names=("internal",)),
        asking(header_names=("snöw",)),
        ADMIN,
    ],
)
def test_suggested_config_makes_every_miss_a_hit(request_: Request, policy: str, default: str | None) -> None:
    closed = {"name": "closed", "hosts": ["closed.example"], "listener": "external", "expose": ["lookup"],
              "allowedListeners": ["external"]}  # fmt: skip
    keys = {**KEYS, "ingresses": [*KEYS["ingresses"], closed], "clientListenerName": policy, "miss": "reject",
            "lookupListenerName": default}  # fmt: skip
    snapshot = build(load_mapping(keys))
    decision = decide(request_, snapshot)
    text = suggestion(request_, decision, snapshot)
    if decision.miss_reason is None:
        assert text is None
        return
    assert text is not None
    decision = decide(request_, build(load_mapping(pasted(text, keys))))
    assert (decision.miss_reason, decision.refusal) == (None, None), text
    assert decision.selection.hit


def test_request_that_no_config_can_make_a_hit_has_no_suggestion() -> None:
    request = asking(header_names=("a", "b"))
    assert suggestion(request, decide(request, picture()), picture()) is None


def test_suggestion_for_a_listener_that_brokers_lack_names_those_they_have() -> None:
    snapshot = build(load_mapping(KEYS), discovered=Discovered(listeners=frozenset({"internal", "partner"})))
    text = suggestion(asking(), decide(asking(), snapshot), snapshot)
    assert text is not None
    assert "which have internal, partner, or change ingress 'public'" in text
    assert decide(asking(), build(load_mapping(pasted(text, KEYS)))).selection.listener == "partner"
