"""A client as anybody would write it: python produce_consume.py URL TOPIC MESSAGE…

It subscribes, produces, consumes, and prints what it has consumed, or what went wrong, as one line of JSON.
"""

import json
import sys

import pulsar


def main(url: str, topic: str, *messages: str) -> None:
    client = pulsar.Client(url, operation_timeout_seconds=10)
    try:
        consumer = client.subscribe(topic, "e2e")
        producer = client.create_producer(topic)
        for message in messages:
            producer.send(message.encode())
        consumed = []
        for _ in messages:
            received = consumer.receive(timeout_millis=10_000)
            consumer.acknowledge(received)
            consumed.append(received.data().decode())
        said: dict[str, object] = {"consumed": consumed}
    except pulsar.PulsarException as failure:
        said = {"failure": type(failure).__name__}
    client.close()
    sys.stdout.write(json.dumps(said) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
