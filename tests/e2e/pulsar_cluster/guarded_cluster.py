"""A second cluster, which wants tokens, has TLS and a third listener, and stands in the middle of PIP-95's migration.

The first broker knows nothing of `bindAddresses`, and has no TLS on its web port yet. The second has them beside the
ports that it had before, the third has nothing else.
"""

from collections.abc import Iterator

import pytest
from brokers import Broker, Options
from cluster import Cluster, running

OLD, BOTH, NEW = Broker(0), Broker(1), Broker(2)
EXTERNAL_PORT, EXTERNAL_TLS_PORT, PARTNER_PORT = 6652, 6653, 6654


def _listeners(broker: Broker) -> list[str]:
    return [
        f"external:pulsar://{broker.address}:{EXTERNAL_PORT}",
        f"external:pulsar+ssl://{broker.address}:{EXTERNAL_TLS_PORT}",
        f"partner:pulsar://{broker.address}:{PARTNER_PORT}",
    ]


MIGRATION = {
    OLD.number: {"webServicePortTls": ""},
    BOTH.number: {"bindAddresses": ",".join(_listeners(BOTH))},
    NEW.number: {
        "brokerServicePort": "",
        "brokerServicePortTls": "",
        "bindAddresses": ",".join(
            [
                f"internal:pulsar://{NEW.address}:6650",
                f"internal:pulsar+ssl://{NEW.address}:6651",
                *_listeners(NEW),
            ]
        ),
    },
}


@pytest.fixture(scope="session")
def guarded() -> Iterator[Cluster]:
    with running(Options(tls=True, authorization=True, partner=True, conf_of=MIGRATION)) as started:
        yield started
