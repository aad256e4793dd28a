"""The commands that matter here: their numbers, what becomes of each, and those that the sidecar says itself. Pure.

Two tables are the whole of what is read: what is taken out of a client's stream and of a broker's. Whatever is in
neither passes, known or not.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from pulsar_ingress_proxy.binary.commands_pb2 import (
    Command,
    Connect,
    Error,
    Lookup,
    LookupResponse,
    PartitionMetadata,
)
from pulsar_ingress_proxy.binary.frames import wanted, write
from pulsar_ingress_proxy.routing.selection import Refusal

CONNECT, CONNECTED, ERROR = 2, 3, 14
CLOSE_PRODUCER, CLOSE_CONSUMER = 15, 16
PARTITION_METADATA, LOOKUP, LOOKUP_RESPONSE = 21, 23, 24
AUTH_CHALLENGE, AUTH_RESPONSE = 36, 37
TOPIC_MIGRATED, SCALABLE_TOPIC_UPDATE, WATCH_TC_ASSIGNMENTS_UPDATE = 68, 71, 80

# After these a client counts on its connection: it has a consumer or a producer there, a transaction coordinator, or
# waits to be told of topics. Without any it looks things up, and may as well do that on another connection.
_SUBSCRIBE, _PRODUCER, _TC_CONNECT, _WATCH_TOPICS = 4, 5, 62, 64
_SCALABLE_LOOKUP, _SCALABLE_SUBSCRIBE, _WATCH_SCALABLE_TOPICS, _WATCH_TC_ASSIGNMENTS = 70, 73, 76, 79

# What it may ask for without any of these, beside lookups, and what that is answered with; ERROR answers some too.
_TOPICS_OF_NAMESPACE, _SCHEMA, _CREATE_SCHEMA = 32, 34, 39
_ANSWERS = (22, 33, 35, 40)

FROM_CLIENT = wanted(
    take=(CONNECT, PARTITION_METADATA, LOOKUP, AUTH_RESPONSE),
    count=(_TOPICS_OF_NAMESPACE, _SCHEMA, _CREATE_SCHEMA),
    note=(
        _SUBSCRIBE, _PRODUCER, _TC_CONNECT, _WATCH_TOPICS, _SCALABLE_LOOKUP, _SCALABLE_SUBSCRIBE,
        _WATCH_SCALABLE_TOPICS, _WATCH_TC_ASSIGNMENTS,
    ),
)  # fmt: skip

REDIRECT, FOUND, FAILED = 0, 1, 2
"""What a LookupResponse says: ask that broker, connect to that broker, or neither."""

METADATA_ERROR, AUTHENTICATION_ERROR, AUTHORIZATION_ERROR, SERVICE_NOT_READY = 1, 3, 4, 6
TOPIC_NOT_FOUND, TOO_MANY_REQUESTS, NOT_ALLOWED = 11, 14, 22

# A broker's refusals in the words of HTTP, in which metrics and events speak of both protocols.
_STATUS = {
    AUTHENTICATION_ERROR: 401, AUTHORIZATION_ERROR: 403, TOPIC_NOT_FOUND: 404, TOO_MANY_REQUESTS: 429,
    SERVICE_NOT_READY: 503, NOT_ALLOWED: 403,
}  # fmt: skip
_NOBODY = 2**64 - 1
"""The request's id, -1 to Java, of an error that answers none; Pulsar Proxy writes the same."""


class Addressed(Protocol):
    """A message with a broker's two addresses."""

    url: bytes
    url_tls: bytes

    def ClearField(self, field_name: str) -> None: ...  # noqa: N802 - protobuf's name


# Every command that tells a client a broker's address, with where in it the addresses stand (PulsarApi.proto). Only
# the first is the answer to a lookup; the others come on connections that carry messages.
CARRIERS: Mapping[int, Callable[[Command], Iterable[Addressed]]] = {
    LOOKUP_RESPONSE: lambda command: (command.lookup_response,),
    CLOSE_PRODUCER: lambda command: (command.close_producer,),  # PIP-307: who has the topic now
    CLOSE_CONSUMER: lambda command: (command.close_consumer,),
    TOPIC_MIGRATED: lambda command: (command.topic_migrated,),  # PIP-188: another cluster's service URL
    SCALABLE_TOPIC_UPDATE: lambda command: (
        *command.scalable_topic_update.dag.segment_brokers,
        *((command.scalable_topic_update.dag,) if command.scalable_topic_update.HasField("dag") else ()),
    ),
    WATCH_TC_ASSIGNMENTS_UPDATE: lambda command: command.watch_tc_assignments_update.snapshot.assignments,
}

FROM_BROKER = wanted(take=(CONNECTED, ERROR, AUTH_CHALLENGE, *CARRIERS), count=_ANSWERS)


def error_code(refusal: Refusal) -> int:
    """The code for an answer of our own, chosen by what clients do with it.

    - Never ServiceNotReady for one lookup: Java (ClientCnx.checkServerError) and C++ drop the whole connection on it,
      with all that runs on it, and come again at once.
    - NotAllowedError for what will not change by asking again, as a listener that may not be named: Java
      (isRetriableError) and C++ (isResultRetryable) tell the application and stop. Go does with any code.
    - MetadataError for what may pass, as a broker that does not answer: it is what brokers say while a bundle moves,
      and Java and C++ ask again until their operation times out.
    - TooManyRequests as brokers use it: Java and C++ give up, and Java reconnects after fifty of them.
    """
    if refusal.status in (429, 503):
        return TOO_MANY_REQUESTS
    return METADATA_ERROR if refusal.status >= 500 else NOT_ALLOWED


def status_of(error: int) -> int:
    """The status that stands for a broker's own error."""
    return _STATUS.get(error, 500)


def lookup_failed(request_id: int, refusal: Refusal) -> bytes:
    """A lookup refused."""
    answer = LookupResponse(
        response=FAILED,
        request_id=request_id,
        error=error_code(refusal),
        message=f"{refusal.code}: {refusal.text}".encode(),
    )
    return write(Command(type=LOOKUP_RESPONSE, lookup_response=answer))


def goodbye(code: int, text: str) -> bytes:
    """Why the connection ends. Clients log it, and take it for the answer to their CONNECT if they wait for one."""
    return write(Command(type=ERROR, error=Error(request_id=_NOBODY, error=code, message=text.encode())))


def clear_originals(message: Connect | Lookup | PartitionMetadata) -> bool:
    """Take out what only a proxy that brokers trust may say of a client; whether there was any."""
    found = False
    for name in ("original_principal", "original_auth_data", "original_auth_method"):
        if message.HasField(name):
            message.ClearField(name)
            found = True
    return found
