"""The cluster's DNS, as Kubernetes has one: python names_server.py ADDRESS HOSTS answers with what that file says.

nginx, HAProxy and Envoy ask a server for names that they learn at run time, and read no hosts file for them. A third
argument is how many seconds each answer takes.
"""

import socket
import struct
import sys
import threading
from pathlib import Path

HEADER = struct.Struct(">HHHHHH")  # RFC 1035 4.1.1: id, flags, counts of questions, answers, authorities, additions
RECORD = struct.Struct(">HHHIH4s")  # RFC 1035 4.1.3: name (a pointer to the question), type, class, seconds, length
A, INTERNET = 1, 1
ANSWERED, NO_SUCH_NAME = 0x8580, 0x8583


def reply(asked: bytes, hosts: dict[str, str]) -> bytes:
    labels, at = [], HEADER.size
    while length := asked[at]:
        labels.append(asked[at + 1 : at + 1 + length].decode())
        at += 1 + length
    kind = int.from_bytes(asked[at + 1 : at + 3], "big")
    address = hosts.get(".".join(labels).lower())
    answers = []
    if address is not None and kind == A:
        answers = [RECORD.pack(0xC000 | HEADER.size, A, INTERNET, 5, 4, socket.inet_aton(address))]
    flags = NO_SUCH_NAME if address is None else ANSWERED
    header = HEADER.pack(int.from_bytes(asked[:2], "big"), flags, 1, len(answers), 0, 0)
    return header + asked[HEADER.size : at + 5] + b"".join(answers)


def main(address: str, file: str, seconds: str = "0") -> None:
    hosts = {name: at for at, name in (line.split() for line in Path(file).read_text().splitlines())}
    with socket.socket(type=socket.SOCK_DGRAM) as server:
        server.bind((address, 53))
        sys.stderr.write("answering\n")
        sys.stderr.flush()
        while True:
            asked, client = server.recvfrom(512)
            threading.Timer(float(seconds), server.sendto, (reply(asked, hosts), client)).start()


if __name__ == "__main__":
    main(*sys.argv[1:])
