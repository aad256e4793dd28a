"""The verdict on two histories: a pure function that knows what was sent and received, and none of the sidecar's code.

Four rules, whatever happens to brokers, the network, the disk or the sidecar itself:
1. No lookup leaves with a listener that its ingress does not allow, and none that is to be refused leaves at all.
2. No client gets an address that is off its listener.
3. No byte of one request reaches another, in either direction.
4. What began has ended, and what has ended is recorded, once.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from histories import Operation, Receipt, outside, owner

NONE = "0-00000000"
"""The sum of an empty body."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the sidecar has written down about itself, after all was quiet."""

    events: Sequence[Mapping[str, Any]]
    requests: Mapping[str, int] | None = None
    """By its metrics, for each kind; None: they began again at 0 in between."""
    dropped: int = 0
    in_flight: int = 0
    connections: int = 0
    buffered: int = 0


@dataclass(frozen=True, slots=True)
class Loss:
    """Events of requests that ended in this time may be missing: the sidecar was killed, without a last write."""

    begin: float
    end: float

    def covers(self, one: Operation) -> bool:
        return one.began <= self.end and one.ended >= self.begin


def violations(
    operations: Sequence[Operation], receipts: Sequence[Receipt], recorded: Recorded, losses: Sequence[Loss] = ()
) -> list[str]:
    """Everything that breaks a rule, one line each."""
    sent = {one.mark for one in operations}
    received = by_mark(receipts)
    strays = [receipt for receipt in receipts if receipt.mark not in sent]
    found = [f"3: a broker received what nobody sent: {receipt}" for receipt in strays]
    for one in operations:
        mine = received[one.mark]
        found += [f"{text}: {one} {mine}" for text in (*_outbound(one, mine), *_inbound(one, mine))]
    return [*found, *_records(operations, received, recorded, losses)]


def _outbound(one: Operation, mine: Sequence[Receipt]) -> Iterator[str]:
    """Of what brokers received."""
    if mine and not one.listener and one.kind == "lookup":
        yield "1: a lookup that is to be refused has left"
    wanted = (one.listener,) if one.kind == "lookup" else ()
    bearer = {f"Bearer {one.mark}", ""}
    for receipt in mine:
        if one.listener and receipt.listeners != wanted:
            yield f"1: tagged with {receipt.listeners}"
        if (receipt.protocol, receipt.kind, receipt.method) != (one.protocol, one.kind, one.method):
            yield "3: it arrived as another request"
        if receipt.received != (one.sent or NONE):
            yield "3: its body was changed"
        if receipt.authorization not in bearer:
            yield "3: it arrived with the token of another"
        if one.broker not in (None, receipt.broker):
            yield "3: it reached another broker than it named"
    if one.method == "POST" and len(mine) > 1:
        yield "3: a POST was sent again"
    if mine and one.outcome in ("unconnected", "refused"):
        yield "3: it arrived, and was never sent"


def _inbound(one: Operation, mine: Sequence[Receipt]) -> Iterator[str]:
    """Of what the client got."""
    if one.fault:
        yield f"3: an answer without sense: {one.fault}"
    if one.outcome == "silent" and (one.protocol == "http" or one.kind == "lookup"):
        yield "4: it was never answered"
    if one.outcome == "begun":
        yield "4: it has not ended"
    if one.names_inside:
        yield "2: the answer names a broker of the inside"
    if one.outcome != "answered" or one.reason:
        return
    if not one.listener and one.kind == "lookup":
        yield "1: a lookup that is to be refused was answered"
        return
    allowed = outside(one.listener, owner(one.mark))
    for address in one.addresses:
        if address not in allowed:
            yield f"2: {address} is off its listener, or of another broker"
    if one.kind == "lookup" and one.status in (200, 307) and not one.addresses:
        yield "2: an answer without an address"
    if one.answer_mark != one.mark:
        yield "3: it got the answer to another request"
    if not mine:
        yield "3: it was answered, and no broker received it"
    if one.kind == "admin" and one.status == 200 and one.answer_sum not in {receipt.answered for receipt in mine}:
        yield "3: the answer was changed"
    if one.kind == "message" and one.answer_sum != one.sent:
        yield "3: the message that came back was changed"


def _records(
    operations: Sequence[Operation],
    received: Mapping[str, Sequence[Receipt]],
    recorded: Recorded,
    losses: Sequence[Loss],
) -> Iterator[str]:
    """Of what the sidecar wrote down."""
    marked: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    by_id = {event["id"]: event for event in recorded.events}
    if len(by_id) != len(recorded.events):
        yield f"4: {len(recorded.events) - len(by_id)} events have the id of another"
    for each in recorded.events:
        if mark := mark_of(each):
            marked[mark].append(each)
    for mark in marked.keys() - {one.mark for one in operations}:
        yield f"4: recorded, and nobody sent it: {marked[mark]}"
    missing = 0
    for one in operations:
        events = marked[one.mark]
        if len(events) > 1:
            yield f"4: recorded {len(events)} times: {one}"
        is_named = one.protocol == "http" and one.outcome == "answered"
        event = by_id.get(one.id) if is_named else next(iter(events), None)
        # A connection too many is answered before its request is read.
        is_due = (one.outcome == "answered" and one.reason != "overloaded") or bool(received.get(one.mark))
        if event is None:
            if (
                is_due
                and (one.protocol == "http" or one.kind == "lookup")
                and not any(loss.covers(one) for loss in losses)
            ):
                missing += 1
                if missing > recorded.dropped:
                    yield f"4: not recorded: {one}"
        elif mark_of(event) not in (one.mark, ""):
            yield f"4: recorded under the id of another: {one} {event}"
        elif one.outcome == "answered" and one.status and event["status"] != one.status:
            yield f"4: recorded with status {event['status']}: {one}"
        elif one.listener and one.kind == "lookup" and event["listener"] not in (one.listener, None):
            yield f"1: recorded with listener {event['listener']}: {one}"
    if recorded.requests is not None:
        yield from _counts(recorded, recorded.requests)
    for name in ("in_flight", "connections", "buffered"):
        if left := getattr(recorded, name):
            yield f"4: {name} is {left} when all was quiet"


def _counts(recorded: Recorded, requests: Mapping[str, int]) -> Iterator[str]:
    """Without a drop each kind adds up but `other`, which has connections that were refused without a request.

    What was dropped may be of any kind.
    """
    events = Counter(event["kind"] for event in recorded.events)
    if recorded.dropped:
        if sum(requests.values()) != events.total() + recorded.dropped:
            yield f"4: {requests} were counted, {events} recorded and {recorded.dropped} dropped"
        return
    for kind in ("lookup", "admin"):
        if requests.get(kind, 0) != events[kind]:
            yield f"4: of {kind}, {requests.get(kind, 0)} were counted and {events[kind]} recorded"


def mark_of(event: Mapping[str, Any]) -> str:
    """HTTP clients have their mark as user agent; binary lookups in their topic."""
    if event["protocol"] == "http":
        return str(event["userAgent"] or "")
    return str(event["topic"] or "").rpartition("/")[2]


def by_mark(receipts: Sequence[Receipt]) -> dict[str, list[Receipt]]:
    found: dict[str, list[Receipt]] = defaultdict(list)
    for receipt in receipts:
        found[receipt.mark].append(receipt)
    return found


def seen(operations: Sequence[Operation], receipts: Sequence[Receipt]) -> Counter[str]:
    """What clients saw, by kind: `usual`, a refusal's status and reason, how else it ended, or `wrong`."""
    received = by_mark(receipts)
    return Counter(_kind(one, received[one.mark]) for one in operations)


def _kind(one: Operation, mine: Sequence[Receipt]) -> str:
    if any(True for _ in (*_outbound(one, mine), *_inbound(one, mine))):
        return "wrong"
    if one.is_normal:
        return "usual"
    if one.reason:
        return f"{one.status or 'binary'} {one.reason}"
    return one.outcome
