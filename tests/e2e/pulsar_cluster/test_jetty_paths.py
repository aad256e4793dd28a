"""What a broker's web server makes of a path is what the sidecar judged it to be, or the sidecar refuses it.

Real Jetty and Jersey of each line of Pulsar, with the contexts of a broker and nothing behind them.
"""

import sys
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import pytest
import yaml
from children import Child
from path_spellings import LOOKUP, PLAIN, TOPICS, few, many
from processes import free_port
from web_contexts import Served, ask, serving

from pulsar_ingress_proxy.http.headers import BadHead, about, split_target

LINES = ("4.0", "4.2", "5.0")
TAKEN_FOR = {
    "lookup": ("lookup", "lookup"),
    "below lookup": ("other", "lookup"),
    "client": ("admin", "client"),
    "admin": ("admin", "admin"),
    "functions": ("admin", "functions"),
    "topics": ("other", "topics"),
    "ws": ("other", "ws"),
    "other": ("other", "other"),
    "status": ("other", "other"),
}
"""By resource: the kind and area that a request for it has to have."""

LISTENERS = {"lookups.test": "external", "clients.test": "partner"}
EXPOSED = {"lookups.test": {"lookup", "below lookup"}, "clients.test": {"lookup", "below lookup", "client"}}
"""By ingress: the resources that it exposes."""

spellings = pytest.mark.parametrize("spellings", [few, pytest.param(many, marks=pytest.mark.full)])
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def jetties(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, int]]:
    with serving(tmp_path_factory.mktemp("jetty")) as ports:
        yield ports


@pytest.fixture(scope="module")
def sidecar(jetties: dict[str, int], tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Its port; each Jetty is a broker, and stands behind each of two ingresses by a host of its own."""
    folder, port = tmp_path_factory.mktemp("sidecar"), free_port()
    config = {
        "bindAddresses": [f"http://127.0.0.1:{port}"],
        "brokers": {"webServiceUrl": [f"http://127.0.0.1:{jetty}" for jetty in jetties.values()]},
        "ingresses": [
            {"name": "lookups", "hosts": ["*.lookups.test"], "listener": "external", "expose": ["lookup"]},
            {"name": "clients", "hosts": ["*.clients.test"], "listener": "partner", "expose": ["lookup", "client"]},
        ],
        "advertisedListeners": [
            {
                "broker": f"broker-{line}.svc",
                "listeners": f"internal:http://127.0.0.1:{jetty}, external:http://{line}.lookups.test, "
                f"partner:http://{line}.clients.test",
            }
            for line, jetty in jetties.items()
        ],
        "metrics": {"address": f"127.0.0.1:{free_port()}"},
        "console": {"address": None},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    program = Path(sys.executable).with_name("pulsar-ingress-proxy")
    child = Child("sidecar", [str(program), "run", "--config", str(folder / "config.yaml")], folder / "log")
    try:
        child.says("serving")
        yield port
    finally:
        child.kill()


def judged(target: str) -> tuple[str, str] | None:
    """The kind and area that decisions are made by; None for what is refused."""
    try:
        path, _, _ = split_target("GET", target)
        found = about("GET", path)
    except BadHead:
        return None
    return found.kind, found.area


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize(
    ("target", "resource"),
    [
        ("/lookup/%u002e%u002e/admin/v2/tenants", "admin"),
        ("/lookup/.%u002e/metrics/x", "other"),
        ("/lookup;v2/topic/persistent/t/n/x", "lookup"),
        ("/admin/v2;tenants/persistent/a/b/c/partitions", "admin"),
    ],
)
def test_jetty_serves_spellings_that_the_sidecar_refuses(
    jetties: dict[str, int], line: str, target: str, resource: str
) -> None:
    """Without these the tests below would prove nothing."""
    assert ask(jetties[line], target).resource == resource
    assert judged(target) is None


@pytest.mark.parametrize("line", LINES)
def test_jetty_serves_plain_paths_as_the_sidecar_classifies_them(jetties: dict[str, int], line: str) -> None:
    for path in PLAIN:
        served = ask(jetties[line], path).resource
        if served is not None or not path.startswith("/admin/") or path.startswith("/admin/v"):  # 4.2 has no v1
            assert TAKEN_FOR[str(served)] == judged(path), path


@spellings
@pytest.mark.parametrize("line", LINES)
def test_jetty_serves_accepted_spellings_as_the_sidecar_classifies_them(
    jetties: dict[str, int], line: str, spellings: Callable[[], list[str]]
) -> None:
    accepted = {target: area for target in spellings() if (area := judged(target)) is not None}
    served = {target: ask(jetties[line], target).resource for target in accepted}
    assert sum(resource is not None for resource in served.values()) >= len(PLAIN)
    differing = {
        target: (accepted[target], resource)
        for target, resource in served.items()
        if resource is not None and TAKEN_FOR[resource] != accepted[target]
    }
    assert differing == {}


@spellings
@pytest.mark.parametrize("ingress", EXPOSED)
def test_an_ingress_lets_through_what_it_exposes_and_nothing_else(
    sidecar: int, ingress: str, spellings: Callable[[], list[str]]
) -> None:
    passed: dict[str, Served] = {}
    for target in spellings():
        # Where the sidecar refuses, it makes no difference which broker it would have asked.
        lines = LINES if judged(target) is not None else LINES[:1]
        for line, form in product(lines, ("", f"http://{lines[0]}.{ingress}")):
            served = ask(sidecar, form + target, f"{line}.{ingress}")
            if served.resource is not None:
                passed[f"{line} {form}{target}"] = served
    assert {target: served for target, served in passed.items() if served.resource not in EXPOSED[ingress]} == {}
    assert {served.resource for served in passed.values()} == EXPOSED[ingress]
    untagged = [
        target
        for target, served in passed.items()
        if served.resource == "lookup" and served.listener != LISTENERS[ingress]
    ]
    assert untagged == []


@pytest.mark.parametrize("line", LINES)
def test_topic_names_that_clients_send_are_served_as_tagged_lookups(
    jetties: dict[str, int], sidecar: int, line: str
) -> None:
    for topic in TOPICS:
        target = LOOKUP.removesuffix("x") + topic
        assert judged(target) == ("lookup", "lookup"), topic
        assert ask(jetties[line], target).resource == "lookup", topic
        through = ask(sidecar, target, f"{line}.lookups.test")
        assert (through.status, through.resource, through.listener) == (200, "lookup", "external"), topic
