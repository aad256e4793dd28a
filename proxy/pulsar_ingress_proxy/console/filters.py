"""Which decisions match a filter. They are judged by their lines, most of which need not be parsed for it. Pure."""

import json
import re

from pulsar_ingress_proxy.console.models import Filter

SEARCHED = (
    "topic", "host", "forwardedHost", "serverName", "tenant", "namespace", "broker", "clientNamed", "redirectFrom",
    "redirectTo", "userAgent", "id",
)  # fmt: skip
"""The fields of an event that `find` looks at."""


class Matcher:
    """A filter, ready to be held against many lines."""

    def __init__(self, wanted: Filter) -> None:
        self.only = wanted.only
        exact = {
            "ingress": wanted.ingress,
            "listener": wanted.listener,
            "rule": wanted.rule,
            "missReason": wanted.miss_reason,
            "protocol": wanted.protocol,
            "kind": wanted.kind,
        }
        # No text of a client looks like this: within strings, quotes are escaped.
        self._parts = [f'"{name}":{json.dumps(value)},' for name, value in exact.items() if value is not None]
        status = wanted.status
        self._status = None if status is None else re.compile(f'"status":{status.replace("x", "[0-9]")},')
        self._find = wanted.find.lower()
        self._escaped = json.dumps(self._find)[1:-1]

    def matches(self, line: str) -> bool:
        if not all(part in line for part in self._parts):
            return False
        if self._status is not None and self._status.search(line) is None:
            return False
        # A line is ASCII: any other character is escaped, even one whose lower case is ASCII, such as the Kelvin sign.
        return not self._find or (("\\u" in line or self._escaped in line.lower()) and self._is_found(line))

    def _is_found(self, line: str) -> bool:
        event = json.loads(line)
        return any(self._find in event[name].lower() for name in SEARCHED if event[name] is not None)
