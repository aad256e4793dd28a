"""The pool of brokers remembers failures, however many there are."""

from pulsar_ingress_proxy.config import load_mapping
from pulsar_ingress_proxy.net.pool import BrokerPool
from pulsar_ingress_proxy.net.tls import BrokerTls
from pulsar_ingress_proxy.syntax.listeners import parse_service_url

GONE, HEALTHY = parse_service_url("http://broker-0:8080"), parse_service_url("http://broker-1:8080")


async def test_a_broker_that_failed_thousands_of_times_in_a_row_is_tried_last_until_it_succeeds() -> None:
    """As happens within seconds under load while a broker is away."""
    pool = BrokerPool(1, BrokerTls(load_mapping({"brokers": {"webServiceUrl": [str(GONE), str(HEALTHY)]}})))
    for _ in range(5000):
        pool.failed(GONE)
    assert [list(pool.in_turn((GONE, HEALTHY))) for _ in range(2)] == [[HEALTHY, GONE]] * 2
    pool.succeeded(GONE)
    assert {next(pool.in_turn((GONE, HEALTHY))) for _ in range(2)} == {GONE, HEALTHY}
