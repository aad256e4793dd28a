"""The rights in deploy/rbac.yaml are those that discovery needs, to the letter."""

from pathlib import Path
from typing import Any

import yaml

from pulsar_ingress_proxy.discovery.reconciler.kinds import KINDS

RBAC = Path(__file__).parents[2] / "deploy/rbac.yaml"


def rights(name: str) -> set[tuple[str, str, str]]:
    """Group, resource and verb of every right that a role gives."""
    documents: list[dict[str, Any]] = list(yaml.safe_load_all(RBAC.read_text()))
    (role,) = (each for each in documents if each["metadata"]["name"] == name and "rules" in each)
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_every_kind_may_be_listed_and_watched_and_nothing_else_may_be_done() -> None:
    wanted = {(kind.group, kind.plural, verb) for kind in KINDS for verb in ("list", "watch")}
    assert rights("pulsar-ingress-proxy") == wanted


def test_the_rest_is_one_get_each() -> None:
    assert rights("pulsar-ingress-proxy-own-pod") == {("", "pods", "get")}
    assert rights("pulsar-ingress-proxy-zone") == {("", "nodes", "get")}
    documents = list(yaml.safe_load_all(RBAC.read_text()))
    assert [each["metadata"]["name"] for each in documents if "rules" in each] == [
        each["roleRef"]["name"] for each in documents if "roleRef" in each
    ]
