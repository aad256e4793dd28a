"""Columns of tables with their meaning, and those that several tables have."""

from dataclasses import dataclass

from pyspark.sql import types as T  # noqa: N812

STRING, COUNT, TIME, DAY, NUMBER = T.StringType(), T.LongType(), T.TimestampType(), T.DateType(), T.DoubleType()
STRINGS = T.ArrayType(STRING)


@dataclass(frozen=True, slots=True)
class Field:
    """One column."""

    name: str
    type: T.DataType
    meaning: str


WINDOW = Field("window_start", TIME, "start of the five minutes, UTC")
HOUR = Field("window_start", TIME, "start of the hour, UTC")
DATE = Field("date", DAY, "the day, UTC")
SIDECAR = Field("sidecar", STRING, "the sidecar that decided")
INGRESS = Field("ingress", STRING, "the ingress it came through; null: none")
LISTENER = Field("listener", STRING, "the listener selected; null: none")
CLIENTS_LISTENER = Field("listener", STRING, "the listener that the client was on")
NAMED = Field("listener", STRING, "the name that the client sent")
BROKER = Field("broker", STRING, "the broker that answered, or that a lookup's answer names; null: none")
RULE = Field("rule", STRING, "rule that decided: query, header, bind, ingress, default or none")
PROTOCOL = Field("protocol", STRING, "http or binary")
KIND = Field("kind", STRING, "lookup, admin or other")
ASKED = Field("host", STRING, "the Host asked for, as in the event")
REASON = Field("reason", STRING, "why it is a miss, in the metric's words")
TENANT = Field("tenant", STRING, "a single name")
USER_AGENT = Field("user_agent", STRING, "the first 256 characters")
REQUESTS = Field("requests", COUNT, "requests, all that have an event")
LOOKUPS = Field("lookups", COUNT, "lookups, hits and misses together")
HITS = Field("hits", COUNT, "lookups that had a listener and were served by it")
MISSES = Field("misses", COUNT, "lookups that were not")
SEEN = (Field("first_seen", TIME, "time of the first"), Field("last_seen", TIME, "time of the last"))
