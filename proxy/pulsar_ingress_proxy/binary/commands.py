"""The commands that the sidecar reads or sends: their numbers, how each is handled, and error codes. Pure.

Two tables list everything that is read: FROM_CLIENT and FROM_BROKER. All other commands pass, and unknown ones are
counted.
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
    ScalableTopicSubscribeResponse,
)
from pulsar_ingress_proxy.binary.frames import handling, write
from pulsar_ingress_proxy.routing.selection import Refusal

KNOWN = frozenset((*range(2, 41), *range(50, 69), *range(70, 82)))
"""All types of PulsarApi.proto that were read for addresses."""
NEWEST_VERSION = 21
"""The newest protocol version of that PulsarApi.proto."""

CONNECT, CONNECTED, ERROR = 2, 3, 14
CLOSE_PRODUCER, CLOSE_CONSUMER, PING, PONG = 15, 16, 18, 19
PARTITION_METADATA, LOOKUP, LOOKUP_RESPONSE = 21, 23, 24
AUTH_CHALLENGE, AUTH_RESPONSE = 36, 37
TOPIC_MIGRATED, WATCH_TC_ASSIGNMENTS_UPDATE = 68, 80
SCALABLE_TOPIC_LOOKUP, SCALABLE_TOPIC_UPDATE, SCALABLE_TOPIC_CLOSE = 70, 71, 72
SCALABLE_TOPIC_SUBSCRIBE, SCALABLE_TOPIC_SUBSCRIBE_RESPONSE, SCALABLE_TOPIC_ASSIGNMENT_UPDATE = 73, 74, 75

# After one of these a client depends on its connection: it has a consumer, a producer or a transaction coordinator
# there, or watches topics. A client that sent none of them only looks things up, and can do that on another connection.
_SUBSCRIBE, _PRODUCER, _TC_CONNECT, _WATCH_TOPICS = 4, 5, 62, 64
_WATCH_SCALABLE_TOPICS, _WATCH_TC_ASSIGNMENTS = 76, 79

# Other requests that do not tie a client to its connection, and their responses; some are answered with ERROR.
_TOPICS_OF_NAMESPACE, _SCHEMA, _CREATE_SCHEMA = 32, 34, 39
_ANSWERS = (22, 33, 35, 40)

FROM_CLIENT = handling(
    KNOWN,
    take=(CONNECT, PARTITION_METADATA, LOOKUP, AUTH_RESPONSE, SCALABLE_TOPIC_SUBSCRIBE),
    count=(_TOPICS_OF_NAMESPACE, _SCHEMA, _CREATE_SCHEMA),
    note=(
        _SUBSCRIBE, _PRODUCER, _TC_CONNECT, _WATCH_TOPICS, SCALABLE_TOPIC_LOOKUP, _WATCH_SCALABLE_TOPICS,
        _WATCH_TC_ASSIGNMENTS,
    ),
)  # fmt: skip

REDIRECT, FOUND, FAILED = 0, 1, 2
"""LookupResponse.response: ask that broker, connect to that broker, or an error."""

METADATA_ERROR, AUTHENTICATION_ERROR, AUTHORIZATION_ERROR, SERVICE_NOT_READY = 1, 3, 4, 6
TOPIC_NOT_FOUND, TOO_MANY_REQUESTS, NOT_ALLOWED = 11, 14, 22

# Brokers' error codes as HTTP statuses, which metrics and events use for both protocols.
_STATUS = {
    AUTHENTICATION_ERROR: 401, AUTHORIZATION_ERROR: 403, TOPIC_NOT_FOUND: 404, TOO_MANY_REQUESTS: 429,
    SERVICE_NOT_READY: 503, NOT_ALLOWED: 403,
}  # fmt: skip
_ORIGINALS = ("original_principal", "original_auth_data", "original_auth_method")
_NO_REQUEST = 2**64 - 1
"""The request id of an error that answers no request: -1 in Java, as Pulsar Proxy sends it."""


class Addressed(Protocol):
    """A message with a broker's two addresses."""

    url: bytes
    url_tls: bytes

    def ClearField(self, field_name: str) -> None: ...  # noqa: N802 - protobuf's name


# Every command that carries broker addresses to a client, and where they are in it (PulsarApi.proto of 5.0.0-M1, and
# of master on 2026-08-20). Only the first answers a lookup; the others are pushed on connections that carry messages.
CARRIERS: Mapping[int, Callable[[Command], Iterable[Addressed]]] = {
    LOOKUP_RESPONSE: lambda command: (command.lookup_response,),
    CLOSE_PRODUCER: lambda command: (command.close_producer,),  # PIP-307: the topic's new owner
    CLOSE_CONSUMER: lambda command: (command.close_consumer,),
    TOPIC_MIGRATED: lambda command: (command.topic_migrated,),  # PIP-188: another cluster's service URL
    SCALABLE_TOPIC_UPDATE: lambda command: (
        *command.scalable_topic_update.dag.segment_brokers,
        *((command.scalable_topic_update.dag,) if command.scalable_topic_update.HasField("dag") else ()),
    ),
    WATCH_TC_ASSIGNMENTS_UPDATE: lambda command: command.watch_tc_assignments_update.snapshot.assignments,
}

FROM_BROKER = handling(KNOWN, take=(CONNECTED, ERROR, AUTH_CHALLENGE, *CARRIERS), count=_ANSWERS)

# What is read on the sidecar's own connection to the controller of a scalable topic; all else is dropped there.
FROM_CONTROLLER = handling(
    KNOWN,
    take=(
        CONNECTED, ERROR, AUTH_CHALLENGE, PING, PONG, SCALABLE_TOPIC_UPDATE, SCALABLE_TOPIC_SUBSCRIBE_RESPONSE,
        SCALABLE_TOPIC_ASSIGNMENT_UPDATE,
    ),
)  # fmt: skip


def error_code(refusal: Refusal) -> int:
    """The error code for a refusal, chosen by how clients react to it.

    - Never ServiceNotReady for a single lookup: Java (ClientCnx.checkServerError) and C++ close the whole connection
      and reconnect at once.
    - NotAllowedError for permanent errors, such as a listener that clients may not name: Java (isRetriableError) and
      C++ (isResultRetryable) report it to the application and stop. Go does so for any code.
    - MetadataError for transient errors, such as a broker that does not answer: brokers send it while a bundle moves,
      and Java and C++ retry until their operation times out.
    - TooManyRequests as brokers use it: Java and C++ give up, and Java reconnects after fifty of them.
    """
    if refusal.status in (429, 503):
        return TOO_MANY_REQUESTS
    return METADATA_ERROR if refusal.status >= 500 else NOT_ALLOWED


def status_of(error: int) -> int:
    return _STATUS.get(error, 500)


def lookup_failed(request_id: int, refusal: Refusal) -> bytes:
    text = f"{refusal.code}: {refusal.text}".encode()
    answer = LookupResponse(response=FAILED, request_id=request_id, error=error_code(refusal), message=text)
    return write(Command(type=LOOKUP_RESPONSE, lookup_response=answer))


def subscription_failed(request_id: int, refusal: Refusal) -> bytes:
    text = f"{refusal.code}: {refusal.text}".encode()
    answer = ScalableTopicSubscribeResponse(request_id=request_id, error=error_code(refusal), message=text)
    return write(Command(type=SCALABLE_TOPIC_SUBSCRIBE_RESPONSE, scalable_topic_subscribe_response=answer))


def closing_error(code: int, text: str) -> bytes:
    """An error to send before closing. Clients log it, or take it as the answer to their pending CONNECT."""
    return write(Command(type=ERROR, error=Error(request_id=_NO_REQUEST, error=code, message=text.encode())))


def clear_originals(message: Connect | Lookup | PartitionMetadata) -> bool:
    """Remove the fields that only a proxy trusted by the brokers may set. Returns whether any was set."""
    found = [name for name in _ORIGINALS if message.HasField(name)]
    for name in found:
        message.ClearField(name)
    return bool(found)
