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


def test_main_role_allows_only_list_and_watch_of_every_discovered_kind() -> None:
    wanted = {(kind.group, kind.plural, verb) for kind in KINDS for verb in ("list", "watch")}
    assert rights("pulsar-ingress-proxy") == wanted


def test_own_pod_and_zone_roles_allow_only_get_and_every_role_is_bound() -> None:
    assert rights("pulsar-ingress-proxy-own-pod") == {("", "pods", "get")}
    assert rights("pulsar-ingress-proxy-zone") == {("", "nodes", "get")}
    documents = list(yaml.safe_load_all(RBAC.read_text()))
    assert [each["metadata"]["name"] for each in documents if "rules" in each] == [
        each["roleRef"]["name"] for each in documents if "roleRef" in each
    ]
