"""Lookups over HTTP, and which listener each of them gets."""

import gzip
from collections.abc import Mapping

from http_cases import (
    ADMIN,
    CONFIG,
    NO_INGRESS,
    OK,
    PARTNER_SOCKET,
    TOKEN,
    TOPIC,
    ask,
    http,
    inside,
    is_at,
    lookup_data,
    moved,
    says,
)
from player import Case, Do

LOOKUPS = {
    "a lookup": http(ask(), broker1=[is_at(2)]),
    "a lookup of a topic of the broker that was asked": http(ask(), broker1=[is_at(1)]),
    "topics one after the other": http(
        *(step for number in range(10) for step in (ask(f"{TOPIC}-{number}"), Do.HEAR)),
        broker1=[is_at(1 + number % 2) for number in range(10)],
        times=1,
    ),
    "ids of a gateway": http(
        *(step for number in range(10) for step in (ask(TOPIC, f"x-request-id: {number:08x}"), Do.HEAR)),
        broker1=[is_at()] * 10,
        times=1,
    ),
    "a lookup with a query": http(ask(f"{TOPIC}?authoritative=true"), broker1=[is_at()]),
    "a lookup with an empty query": http(ask(f"{TOPIC}?"), broker1=[is_at()]),
    "a lookup by the old path": http(
        ask("/lookup/v2/destination/persistent/public/cluster/default/orders"), broker1=[is_at()]
    ),
    "a topic that is not persistent, with an encoded name": http(
        ask("/lookup/v2/topic/non-persistent/public/default/a%2Fb%20%C3%A9"), broker1=[is_at()]
    ),
    "a topic with a plus": http(ask(f"{TOPIC}+1"), broker1=[is_at()]),
    "a bundle of a topic": http(ask(f"{TOPIC}/bundle"), broker1=[says("200 OK", body="0x00_0x40")]),
    "a lookup with POST": http(ask(method="POST"), broker1=[says("405 Method Not Allowed")]),
    "a lookup with HEAD": http(ask(method="HEAD"), broker1=[b"HTTP/1.1 200 OK\r\nContent-Length: 200\r\n\r\n"]),
    "a lookup that asks for compression": http(ask(TOPIC, "Accept-Encoding: gzip"), broker1=[is_at()]),
    "an answer that is compressed all the same": http(
        ask(TOPIC, "Accept-Encoding: gzip"),
        broker1=[says("200 OK", "Content-Encoding: gzip", body=gzip.compress(lookup_data().encode(), mtime=0))],
    ),
    "an answer in a coding that nobody knows": http(
        ask(), broker1=[says("200 OK", "Content-Encoding: zip", body=lookup_data())]
    ),
    "a lookup with a token": http(ask(TOPIC, TOKEN, "User-Agent: Pulsar-Java-v4.0.0"), broker1=[is_at()]),
    "a partner's lookup": http(ask(host="partner.example"), broker1=[is_at()]),
    "a partner's lookup over https": http(
        ask(TOPIC, "X-Forwarded-Proto: https", host="partner.example"), broker1=[is_at()]
    ),
    "a lookup at one broker's host": http(ask(host="broker-2.pulsar.example.com"), broker2=[is_at(2)]),
    "a lookup at one broker's host with the port": http(
        ask(TOPIC, "X-Forwarded-Proto: https", host="broker-2.pulsar.example.com:443"), broker2=[is_at(2)]
    ),
    "a lookup at the host of a broker that cannot be reached": http(ask(host="b4.partner.example:8080")),
    "a lookup at a host in capitals, with a dot": http(ask(host="PULSAR.example.com.:80"), broker1=[is_at()]),
    "a target that is a URL": http(
        ask(f"http://partner.example{TOPIC}", host="pulsar.example.com"), broker1=[is_at()]
    ),
    "an answer with keys of tomorrow": http(ask(), broker1=[is_at(2, tomorrow="pulsar://x", httpUrlTls="")]),
    "an answer that is no JSON": http(ask(), broker1=[says("200 OK", body="hello")]),
    "an answer without content": http(ask(), broker1=[says("200 OK")]),
    "an answer in chunks": http(
        ask(), broker1=[b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n"
                        % (len(lookup_data()), lookup_data().encode())],
    ),
    "an answer to the end of the connection": http(
        ask(), broker1=[(b"HTTP/1.1 200 OK\r\n\r\n" + lookup_data().encode(), Do.CLOSE)]
    ),
    "a broker that closes after each answer": http(
        ask(), broker1=[(says("200 OK", "Connection: close", body=lookup_data()), Do.CLOSE)]
    ),
    "two lookups at once": http(
        ask() + ask(f"{TOPIC}-2"), Do.HEAR, Do.HEAR, broker1=[is_at(1), is_at(2)]
    ),
    "a lookup and an admin call at once": http(ask() + ask(ADMIN), Do.HEAR, Do.HEAR, broker1=[is_at(1), OK]),
    "a lookup in pieces": http(ask()[:30], ask()[30:-2], ask()[-2:], Do.HEAR, broker1=[is_at()]),
}  # fmt: skip

SELECTION = {
    "a listener by the query": http(ask(f"{TOPIC}?listenerName=partner"), broker1=[is_at()]),
    "a listener by an encoded query": http(ask(f"{TOPIC}?a=b&listener%4Eame=partner&c"), broker1=[is_at()]),
    "a listener by the header": http(ask(TOPIC, "X-Pulsar-ListenerName: partner"), broker1=[is_at()]),
    "the query beats the header": http(
        ask(f"{TOPIC}?listenerName=partner", "X-Pulsar-ListenerName: external"), broker1=[is_at()]
    ),
    "a blank listener": http(ask(f"{TOPIC}?listenerName=+&a=b", "X-Pulsar-ListenerName: "), broker1=[is_at()]),
    "the ingress's own listener": http(
        ask(f"{TOPIC}?listenerName=partner", host="partner.example"), broker1=[is_at()]
    ),
    "two names that differ": http(
        ask(TOPIC, "X-Pulsar-ListenerName: partner", "X-Pulsar-ListenerName: external")
    ),
    "two names that are the same": http(
        ask(TOPIC, "X-Pulsar-ListenerName: partner", "X-Pulsar-ListenerName: partner"), broker1=[is_at()]
    ),
    "a listener that is not allowed": http(ask(f"{TOPIC}?listenerName=external", host="partner.example")),
    "the internal listener": http(ask(TOPIC, "X-Pulsar-ListenerName: internal")),
    "a listener that no broker has": http(ask(TOPIC, "X-Pulsar-ListenerName: nobody")),
    "a listener that no broker has, forwarded": http(
        ask(TOPIC, "X-Pulsar-ListenerName: nobody"), broker1=[is_at()], unknownListener="forward"
    ),
    "a name that cannot be one": http(ask(f"{TOPIC}?listenerName=a%20b")),
    "names are ignored": http(
        ask(f"{TOPIC}?listenerName=partner&a=b", "X-Pulsar-ListenerName: partner"),
        broker1=[is_at()],
        clientListenerName="ignore",
    ),
    "names are rejected": http(ask(f"{TOPIC}?listenerName=partner"), clientListenerName="reject"),
    "the ingress's own name is not rejected": http(
        ask(TOPIC, "X-Pulsar-ListenerName: external"), broker1=[is_at()], clientListenerName="reject"
    ),
    "a miss": http(ask(host=NO_INGRESS), broker1=[is_at()]),
    "a miss that is redirected": http(ask(host=NO_INGRESS), broker1=[moved(inside(2))]),
    "a miss that is rejected": http(ask(host=NO_INGRESS), miss="reject"),
    "an admin call of no ingress": http(ask(ADMIN, host=NO_INGRESS), broker1=[OK], miss="reject"),
    "the default listener": http(ask(host=NO_INGRESS), broker1=[is_at()], lookupListenerName="external"),
    "a socket's listener": http(ask(host=NO_INGRESS), broker1=[is_at()], bindAddresses=PARTNER_SOCKET),
    "a socket's listener and another host": http(ask(), broker1=[is_at()], bindAddresses=PARTNER_SOCKET),
    "a broker that lacks the listener": http(
        ask(), broker1=[says("500 Server Error", body="the broker do not have external listener")]
    ),
    "a broker that lacks the listener, in other words": http(
        ask(),
        broker1=[says("500 Server Error", body="Broker 'b' does not have 'external' listener configured")],
    ),
    "a lookup that is not exposed": http(ask(), ingresses=[{**CONFIG["ingresses"][0], "expose": ["admin"]}]),
    "an admin call that is not exposed": http(
        ask(ADMIN, method="DELETE"), ingresses=[{**CONFIG["ingresses"][0], "expose": ["lookup", "client"]}]
    ),
    "a call of clients that is exposed": http(
        ask(ADMIN), broker1=[OK], ingresses=[{**CONFIG["ingresses"][0], "expose": ["lookup", "client"]}]
    ),
    "a host of no ingress gets no more than those of one": http(
        ask(ADMIN, host=NO_INGRESS), ingresses=[{**CONFIG["ingresses"][0], "expose": ["lookup"]}]
    ),
    "a shadow of a lookup": http(
        ask(f"{TOPIC}?listenerName=partner", "X-Pulsar-ListenerName: external", "Accept-Encoding: gzip"),
        broker1=[is_at()],
        shadow=True,
    ),
    "a shadow of a refusal": http(ask(TOPIC, "X-Pulsar-ListenerName: nobody"), broker1=[is_at()], shadow=True),
    "a shadow of a redirect": http(ask(), broker1=[moved(inside(2))], shadow=True),
    "a shadow of a redirect that would be refused": http(
        ask(), broker1=[moved("http://10.1.2.3:8080/x")], shadow=True
    ),
}  # fmt: skip

GROUPS: Mapping[str, Mapping[str, Case]] = {
    "http_lookups": LOOKUPS,
    "http_selection": SELECTION,
}
