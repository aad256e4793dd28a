"""Generates event files like those of sidecars: many, of a few minutes each, and as hard to compress as real ones.

Ids are random, times have microseconds and durations three decimals; topics, brokers and agents are as unlike as a
busy cluster's. All follows from hashes of an event's number, so that the same number of events is always the same
files. DuckDB makes the lines, as nothing else here is quick enough for ten million.
"""

import gzip
import multiprocessing
import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb

START = datetime(2026, 11, 16, tzinfo=UTC)
RATE = 20
"""Events per second of one sidecar."""
MINUTES = 5
"""Seconds per file, as `rotateSeconds`."""

_EVENT = """
with numbered as (
    select i, hash(i, 1) as a, hash(i, 2) as b, hash(i, 3) as c, hash(i, 4) as d, hash(i, 5) as e,
        {first} + (i - {start}) * {step} + (hash(i, 6) % {step})::bigint as micros
    from range({start}, {end}) t(i)
), drawn as (
    select *,
        floor(pow((a % 1000003) / 1000003.0, 3) * 20000)::bigint as topic,  -- few topics have most lookups
        b % 100 as fate, (b >> 8) % 1000 / 1000.0 as luck, make_timestamp(micros) as moment,
        exp(sqrt(-2 * ln(((c % 999983) + 1) / 999984.0)) * cos(6.2831853 * (d % 999979) / 999979.0) * 0.6 + 1.2) as ms
    from numbered
), placed as (
    select *, topic % 53 as tenant, topic % 211 as namespace,
        -- a topic's bundle moves to another broker every few hours
        hash(topic % 512, (micros / 3600000000 + topic % 7)::bigint // 5) % 24 as broker,
        fate < 3 as missed, fate between 3 and 7 as redirected, fate between 8 and 15 as admin,
        fate between 16 and 17 as named,
        ['public', 'partner', 'internal', 'edge-eu'][1 + (d % 17 // 6)::int] as ingress
    from drawn
), named as (
    select *, concat('pulsar-broker-', broker, '.pulsar-broker.pulsar.svc.cluster.local:8080') as inside from placed
)
select micros // {window} as piece, concat(
    '{{"schema":1,"time":"', strftime(moment, '%Y-%m-%dT%H:%M:%S.%fZ'), '","id":"', md5(i::varchar),
    '","cluster":"pulsar-main","sidecar":"{sidecar}","generation":', 40 + micros // 10800000000 % 50,
    ',"protocol":"', if(e % 5 = 0, 'binary', 'http'), '","kind":"', if(admin, 'admin', 'lookup'),
    '","method":"', if(admin and c % 3 = 0, 'PUT', 'GET'), '","scheme":"https","ingress":',
    if(missed, 'null', concat('"', ingress, '"')), ',"bind":"0.0.0.0:8443","host":"',
    if(missed, concat('pulsar-', d % 40, '.apps.example.org'), concat(ingress, '.pulsar.example.com')),
    '","forwardedHost":null,"serverName":null,"listener":', if(missed, 'null', concat('"', ingress, '"')),
    ',"rule":"', if(missed, 'none', if(named, 'query', 'ingress')), '","hit":', if(missed or admin, 'false', 'true'),
    ',"missReason":', if(missed, if(luck < 0.8, '"no-rule"', '"not-allowed"'), 'null'),
    ',"clientNamed":', if(named, concat('"', ingress, '"'), 'null'),
    ',"clientNamedBy":', if(named, '"query"', 'null'),
    ',"tenant":"tenant-', tenant, '","namespace":"namespace-', namespace,
    '","topic":', if(admin, 'null', concat(
        '"persistent://tenant-', tenant, '/namespace-', namespace, '/orders-', topic, '-partition-', a % 4, '"')),
    ',"broker":', if(missed, 'null', concat('"', inside, '"')),
    ',"status":', if(missed, 404, if(redirected, 307, 200)),
    ',"redirectAction":', if(redirected, '"rewritten"', 'null'),
    ',"redirectFrom":', if(redirected, concat(
        '"http://', inside, '/lookup/v2/topic/persistent/tenant-', tenant, '/namespace-', namespace, '/orders-', topic,
        '"'), 'null'),
    ',"redirectTo":', if(redirected and luck < 0.95, concat(
        '"https://broker-', broker, '.pulsar.example.com/lookup/v2/topic/persistent/tenant-', tenant, '/namespace-',
        namespace, '/orders-', topic, '"'), 'null'),
    ',"hops":', if(redirected, 1, 0), ',"leak":', if(redirected and luck >= 0.99, '"location"', 'null'),
    ',"durationMs":', printf('%.3f', ms + 0.2 + luck), ',"upstreamMs":', if(missed, 'null', printf('%.3f', ms)),
    ',"requestBytes":', if(admin, d % 900, 0), ',"responseBytes":', 230 + topic % 60 + e % 9,
    ',"clientClass":"', if(e % 3 = 0, 'public', 'private'), '","userAgent":"', case e % 4
        when 0 then concat('Pulsar-Java-v4.', e // 7 % 3, '.', e // 11 % 8)
        when 1 then concat('Pulsar-CPP-v3.', e // 7 % 8, '.0')
        when 2 then concat('Go/1.2', e // 7 % 6, ' pulsar-client-go/0.1', e // 11 % 7)
        else 'python-requests/2.32.3' end, '"}}'
) as line
from named
order by micros
"""


@dataclass(frozen=True, slots=True)
class Made:
    """The event files of one sidecar and hour."""

    folder: Path
    sidecar: int
    hour: int
    start: int
    count: int
    is_packed: bool

    def write(self) -> int:
        """Write them; returns the size of the lines in bytes."""
        first = START + timedelta(hours=self.hour)
        micros = int(first.timestamp()) * 1_000_000
        name = f"pulsar-ingress-{self.sidecar:x}{self.sidecar * 7919 % 4096:03x}"
        query = _EVENT.format(
            first=micros, start=self.start, end=self.start + self.count, step=3_600_000_000 // self.count,
            window=MINUTES * 60_000_000, sidecar=name,
        )  # fmt: skip
        with duckdb.connect(config={"threads": 1}) as duck:
            duck.execute("set enable_progress_bar = false")
            rows = duck.sql(query).fetchall()
        pieces: dict[int, list[str]] = {}
        for piece, line in rows:
            pieces.setdefault(piece, []).append(line)
        size = 0
        for piece, lines in pieces.items():
            data = ("\n".join(lines) + "\n").encode()
            size += len(data)
            at = datetime.fromtimestamp(piece * MINUTES * 60, UTC)
            path = self.folder / f"{at:%Y%m%dT%H%M%S}-{name}.jsonl{'.gz' if self.is_packed else ''}"
            path.write_bytes(gzip.compress(data, 1) if self.is_packed else data)
        return size


def make(folder: Path, count: int, hours: int = 24, is_packed: bool = True, first_hour: int = 0) -> int:
    """Write the files with two processes; returns the size of the lines in bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    sidecars = max(1, round(count / hours / 3600 / RATE))
    jobs, start = [], first_hour * 1_000_000_000
    for place in range(hours * sidecars):
        share = count * (place + 1) // (hours * sidecars) - count * place // (hours * sidecars)
        hour, sidecar = divmod(place, sidecars)
        jobs.append(Made(folder, sidecar, first_hour + hour, start, share, is_packed))
        start += share
    with multiprocessing.get_context("spawn").Pool(len(os.sched_getaffinity(0))) as pool:
        return sum(pool.map(Made.write, jobs, chunksize=1))
