"""A topic that is handed over: under the extensible load manager the old owner tells its clients who has it now.

It tells them by the listener of the port that they came in by (PIP-307, ServerCnx), whatever their lookup was for.
"""

from collections.abc import Iterator

import pytest
from brokers import Broker, Options
from clients import talking
from cluster import Cluster, running
from gateways import sidecar
from ownership import give, move, owner

pytestmark = pytest.mark.full

ONE_PORT, PORT_FOR_EACH, THIRD = Broker(0), Broker(1), Broker(2)
CONF = {
    "brokerServicePort": "",
    "bindAddresses": f"internal:pulsar://{PORT_FOR_EACH.address}:6660,external:pulsar://{PORT_FOR_EACH.address}:6650",
    "advertisedListeners": f"internal:pulsar://{PORT_FOR_EACH.name}:6660,external:{PORT_FOR_EACH.external_service}",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """The route from outside leads to a port for everybody, or to one for the external listener."""
    with running(Options(load_manager="extensible", conf_of={PORT_FOR_EACH.number: CONF})) as started:
        yield started


@pytest.mark.parametrize("before", [ONE_PORT, PORT_FOR_EACH], ids=["one port", "a port for each listener"])
def test_handover_names_the_new_owner_by_the_listener_of_the_old_broker_port(
    cluster: Cluster, namespace: str, before: Broker
) -> None:
    topic = f"persistent://{namespace}/orders"
    give(cluster, topic, before)
    with sidecar(cluster), talking(cluster) as client:
        client.subscribe(topic)
        client.produce(topic, "one")
        client.consume_until("one")
        move(cluster, namespace, THIRD)
        client.produce(topic, "two")
        client.consume_until("two")
        told = THIRD.service if before == ONE_PORT else THIRD.external_service
        assert f"assignedBrokerUrl: {told}" in client.log
        # Sent inside, it fails and looks the topic up again, through the sidecar.
        assert client.connected == {before.external_service, told, THIRD.external_service}
    assert owner(cluster, topic) == THIRD
