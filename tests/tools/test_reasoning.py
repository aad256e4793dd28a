"""Rule by rule: the words say what `select` did, whatever the request and the config."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_ingress_proxy.config import load_mapping
from pulsar_ingress_proxy.routing.paths import Target
from pulsar_ingress_proxy.routing.requests import Request
from pulsar_ingress_proxy.routing.selection import select
from pulsar_ingress_proxy.routing.snapshot import Snapshot, build
from pulsar_ingress_proxy.syntax.authorities import Authority
from pulsar_ingress_proxy.tools.reasoning import ORDER, steps

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
        (asking(), {}, "query", "passed-over", "the listenerName parameter is not there"),
        (asking(query_names=(" ",)), {}, "query", "passed-over", "the listenerName parameter is blank"),
        (asking(), {}, "header", "passed-over", "X-Pulsar-ListenerName was not sent"),
        (asking(), {}, "bind", "passed-over", "leaves the choice to the ingress"),
        (asking(), {}, "ingress", "decided", "Host pulsar.example.com is of ingress 'public'"),
        (asking(), {}, "default", "not-reached", "ingress came first; lookupListenerName is not set"),
        (asking(query_names=("external",)), {}, "query", "passed-over", "which is what ingress gives"),
        (asking(query_names=("partner",)), {}, "query", "decided", "names 'partner'"),
        (asking(query_names=("partner",)), {}, "ingress", "not-reached", "query came first; Host"),
        (asking(query_names=("nobodys",)), {}, "query", "refused", "unknown-listener: no broker has"),
        (asking(query_names=("internal",)), {}, "query", "refused", "not-allowed: "),
        (asking(query_names=("partner",)), IGNORE, "query", "passed-over", "clientListenerName: ignore drops it"),
        (asking(query_names=("partner",)), REJECT, "query", "refused", "client-named: "),
        (asking(query_names=("external",), header_names=("partner",)), {}, "header", "passed-over", "the query named"),
        (asking(header_names=("a", "b")), {}, "header", "refused", "conflicting-names: "),
        (asking(bind_listener="partner"), {}, "bind", "decided", "is for 'partner'"),
        (asking(ELSEWHERE), {}, "ingress", "passed-over", "no ingress has else.where:80"),
        (asking(ELSEWHERE, forwarded_host=HOST), {}, "ingress", "decided", "X-Forwarded-Host pulsar.example.com"),
        (asking(None), {}, "ingress", "passed-over", "there is no Host"),
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
