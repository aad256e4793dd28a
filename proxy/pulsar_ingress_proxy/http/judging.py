"""Answers to lookups, held against what may leave: what was found is recorded, `leaks` says what is done about it."""

from pulsar_ingress_proxy.net.context import Rules
from pulsar_ingress_proxy.observability.access_record import Record
from pulsar_ingress_proxy.routing.answers import lacks_listener
from pulsar_ingress_proxy.routing.selection import Refusal


def put_on_listener(body: bytes, listener: str, rules: Rules, record: Record) -> tuple[bytes, Refusal | None]:
    """A 200's body on the listener, or the refusal of one that cannot be put there."""
    leaks = rules.config.leaks
    answer = rules.on_listener(body, listener)
    record.broker = answer.broker
    if leaks == "observe":
        if answer.was_foreign:
            record.leaked("body", "observed")
        return body, None
    if not answer.is_foreign:
        return answer.body, None
    if leaks == "block":
        record.leaked("body", "blocked")
        text = f"the broker's answer has an address that is not on listener '{listener}'"
        return answer.body, Refusal(502, "leak", text)
    record.leaked("body", "passed")
    return answer.body, None


def refuse_lack(status: int, body: bytes, listener: str, record: Record) -> Refusal | None:
    """The refusal that a broker means by its 500 for a listener it lacks: the lookup was a miss after all."""
    refusal = lacks_listener(status, body, listener)
    if refusal is not None:
        record.miss_reason = refusal.code
    return refusal
