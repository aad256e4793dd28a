"""Whatever addresses a broker's command carries: with `leaks: block`, none that is inside reaches a client."""

from hypothesis import example, given
from hypothesis import strategies as st
from words import PUSHES

from pulsar_ingress_proxy.binary.answers import decide_pushed
from pulsar_ingress_proxy.binary.commands import CARRIERS
from pulsar_ingress_proxy.binary.commands_pb2 import Command
from pulsar_ingress_proxy.config import load_mapping
from pulsar_ingress_proxy.routing.decision_cache import DecisionCache
from pulsar_ingress_proxy.routing.selection import Selection
from pulsar_ingress_proxy.routing.snapshot import build

SNAPSHOT = build(
    load_mapping(
        {
            "brokers": {"webServiceUrl": ["http://broker:8080"]},
            "lookupListenerName": "external",
            "leaks": "block",
            "advertisedListeners": [
                {
                    "broker": "b-{n}.svc",
                    "listeners": "internal:pulsar://b-{n}.svc:6650,external:pulsar://b-{n}.example.com:6650,"
                    "external:pulsar+ssl://b-{n}.example.com:6651",
                }
            ],
        }
    )
)
SELECTION = Selection(None, "external", "default")
PARTS = (
    "pulsar://",
    "pulsar+ssl://",
    "http://",
    "b-1",
    "b-2",
    ".svc",
    ".SVC",
    ".example.com",
    ".",
    ":6650",
    ":6651",
    ",",
    "@",
    "/",
)
TEXTS = st.lists(st.sampled_from(PARTS) | st.text(max_size=3), max_size=6).map("".join)
INSIDE, OUTSIDE, OUTSIDE_TLS = (
    "pulsar://b-1.svc:6650",
    "pulsar://b-1.example.com:6650",
    "pulsar+ssl://b-1.example.com:6651",
)
ADDRESSES = st.none() | st.sampled_from((INSIDE, OUTSIDE, OUTSIDE_TLS)) | TEXTS


def addresses(command: Command) -> list[str]:
    found = [url for message in CARRIERS[command.type](command) for url in (message.url, message.url_tls)]
    return [url.decode() for url in found if url]


@given(st.sampled_from(sorted(PUSHES)), ADDRESSES, ADDRESSES)
@example("CloseProducer", INSIDE, None)
@example("WatchTcAssignmentsUpdate", INSIDE, INSIDE)
def test_no_pushed_command_carries_an_address_off_the_listener_when_leaks_are_blocked(
    name: str, url: str | None, url_tls: str | None
) -> None:
    decisions, command = DecisionCache(SNAPSHOT), Command.FromString(PUSHES[name](url, url_tls)[8:])
    decided = decide_pushed(command, SELECTION, "pulsar", decisions)
    if decided.refusal is None:  # else the client does not get it
        assert not [address for address in addresses(command) if ".svc" in address.lower()]
        again = decide_pushed(command, SELECTION, "pulsar", decisions)
        assert (again.changed, again.leak, again.refusal) == (False, None, None)
