"""kube-apiserver and etcd as processes on loopback: the whole API of a cluster, without controllers and nodes.

What controllers would do, tests do: EndpointSlices, the status of pods, addresses of load balancers, ServiceAccounts.
A namespace that is deleted stays, terminating.
"""

import asyncio
import random
import secrets
import signal
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from apiclient import Api, connected
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from go_modules import API_SERVER, built

READY_SECONDS = 120
END_SECONDS = 30


class ApiServer:
    """One API server and its etcd. It outlives event loops: what a test awaits here is tied to none."""

    def __init__(self, programs: Mapping[str, Path], folder: Path, users: Sequence[str]) -> None:
        self._programs = programs
        self._folder = folder
        self._port, self._etcd_port, self._peer_port = lasting_ports(3)
        self._tokens = {user: secrets.token_hex(16) for user in ("admin", *users)}
        self._etcd: subprocess.Popen[bytes] | None = None
        self._server: subprocess.Popen[bytes] | None = None
        self._write_credentials()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._port}"

    @property
    def certificates(self) -> Path:
        """The certificate that the server made itself, and its authority's."""
        return self._folder / "certificates/apiserver.crt"

    def token(self, user: str) -> str:
        """The token of `admin`, who may do everything, or of a user whom it was started with, who may do nothing."""
        return self._tokens[user]

    def connected(self, token: str) -> AbstractAsyncContextManager[Api]:
        return connected(self.url, ssl.create_default_context(cafile=self.certificates), token)

    def kubeconfig(self, file: Path, token: str, namespace: str = "default") -> Path:
        """Write the file by which whoever has that token reaches this server."""
        cluster = {"server": self.url, "certificate-authority": str(self.certificates)}
        context = {"cluster": "tests", "user": "user", "namespace": namespace}
        config: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "tests", "cluster": cluster}],
            "users": [{"name": "user", "user": {"token": token}}],
            "contexts": [{"name": "tests", "context": context}],
            "current-context": "tests",
        }
        file.write_text(yaml.safe_dump(config))
        return file

    async def start(self) -> None:
        """Start what does not run, on the same ports with the same data, and wait until it is ready."""
        if self._etcd is None:
            self._etcd = self._spawn(*self._etcd_command())
        if self._server is None:
            self._server = self._spawn(*self._server_command())
        try:
            async with asyncio.timeout(READY_SECONDS):
                await self._ready()
        except TimeoutError:
            raise AssertionError(f"the API server is not ready after {READY_SECONDS} s\n{self.output()}") from None

    async def stop(self) -> None:
        """End the API server as a roll-out does: watches are closed, then it goes. etcd stays."""
        await self._end_server(signal.SIGTERM)

    async def kill(self) -> None:
        """End the API server without a word. etcd stays."""
        await self._end_server(signal.SIGKILL)

    async def restart(self) -> None:
        """Kill it and start it again. It then knows no history: a watch from an older version gets 410."""
        await self.kill()
        await self.start()

    def close(self) -> None:
        """End both for good."""
        for child in (self._server, self._etcd):
            if child is not None:
                child.kill()
                child.wait(END_SECONDS)
        self._server = self._etcd = None

    def output(self) -> str:
        """The last that both said."""
        logs = sorted(self._folder.glob("*.log"))
        return "\n".join(f"{log.name}:\n{log.read_text(errors='replace')[-4000:]}" for log in logs)

    async def _end_server(self, how: signal.Signals) -> None:
        if self._server is not None:
            self._server.send_signal(how)
            await asyncio.to_thread(self._server.wait, END_SECONDS)
            self._server = None

    async def _ready(self) -> None:
        while not await self._says_ready():
            for name, child in (("etcd", self._etcd), ("kube-apiserver", self._server)):
                assert child is not None
                assert child.poll() is None, f"{name} ended with {child.returncode}\n{self.output()}"
            await asyncio.sleep(0.05)  # nobody tells when it is

    async def _says_ready(self) -> bool:
        headers = {"Authorization": f"Bearer {self.token('admin')}"}
        try:
            trust = ssl.create_default_context(cafile=self.certificates)
            async with (
                aiohttp.ClientSession(self.url, headers=headers) as client,
                client.get("/readyz", ssl=trust) as answer,
            ):
                return answer.status == 200
        except (OSError, aiohttp.ClientError):  # no certificate yet, or half of it; no socket yet
            return False

    def _spawn(self, program: Path, *arguments: str) -> subprocess.Popen[bytes]:
        return spawned([program, *arguments], self._folder, self._folder / f"{program.name}.log")

    def _etcd_command(self) -> tuple[Path, *tuple[str, ...]]:
        client, peer = f"http://127.0.0.1:{self._etcd_port}", f"http://127.0.0.1:{self._peer_port}"
        return (
            self._programs["etcd"],
            "--data-dir=etcd",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",  # processes are killed here, machines are not
        )

    def _server_command(self) -> tuple[Path, *tuple[str, ...]]:
        return (
            self._programs["kube-apiserver"],
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self._port}",
            "--cert-dir=certificates",
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            "--authorization-mode=RBAC",
            "--token-auth-file=tokens.csv",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-account-key-file=service-accounts.pem",
            "--service-account-signing-key-file=service-accounts.pem",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--endpoint-reconciler-type=none",  # loopback is no endpoint
            "--shutdown-watch-termination-grace-period=1s",  # without it, watches keep a stopped server up for a minute
            "--disable-admission-plugins=ServiceAccount",  # pods need no ServiceAccount, which no controller makes
        )

    def _write_credentials(self) -> None:
        """Who is who, by token; and the key that signs the tokens of ServiceAccounts."""
        self._folder.mkdir(parents=True, exist_ok=True)
        groups = {"admin": ',"system:masters"'}
        rows = [f"{token},{user},{user}{groups.get(user, '')}\n" for user, token in self._tokens.items()]
        (self._folder / "tokens.csv").write_text("".join(rows))
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
        (self._folder / "service-accounts.pem").write_bytes(pem)


@asynccontextmanager
async def running(folder: Path, *users: str) -> AsyncIterator[ApiServer]:
    """An API server of one's own, ready, for as long as the block lasts."""
    server = ApiServer(built(API_SERVER), folder, users)
    try:
        await server.start()
        yield server
    finally:
        server.close()


def spawned(command: Sequence[str | Path], folder: Path, log: Path) -> subprocess.Popen[bytes]:
    """A child that ends with the thread that starts it, even where that is killed: prctl(2), PR_SET_PDEATHSIG."""
    with log.open("ab") as said:
        return subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *command],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            cwd=folder,
        )


def lasting_ports(count: int) -> list[int]:
    """Free ports below those that Linux hands out: while a server is down, no client's end takes its port."""
    found: list[int] = []
    for port in random.sample(range(20000, 32000), 1000):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise AssertionError(f"of a thousand ports, fewer than {count} are free")
