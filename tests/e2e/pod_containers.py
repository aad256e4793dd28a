"""A container of a manifest as a process: its command, arguments, variables, files and user, in a root of its own.

The root is a file system in memory with this machine's programs, the environment that runs the tests in place of the
image's content, and what the manifest mounts, at its very paths. It is read-only where the manifest says so.
"""

import asyncio
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from apiclient import Object
from pod_networks import Network
from pod_volumes import Folder, Unknown, field
from processes import BIN, Process

PROJECT = Path(__file__).parents[2]
ENTRYPOINT = ["pulsar-ingress-proxy"]  # as in the image
PATH = f"{BIN}:/usr/bin:/bin"
USR = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
ETC = ("ssl", "ld.so.cache", "localtime")


class Container:
    """One that was started."""

    def __init__(self, child: asyncio.subprocess.Process, credentials: list[str], variables: Mapping[str, str]) -> None:
        self.process = Process(child)
        self._child = child
        self._credentials = credentials
        self._variables = variables

    @property
    def output(self) -> str:
        return self.process.output

    @property
    def code(self) -> int | None:
        return self._child.returncode

    async def ended(self) -> int:
        """Its code, once it has ended and all that it said is known."""
        await self._child.wait()
        return await self.process.end()

    async def run(self, *command: str) -> int:
        """A command inside, as by an exec probe; its code."""
        child = await asyncio.create_subprocess_exec(
            "/usr/bin/nsenter", "--target", str(self._child.pid), "--mount", "--net", "--root", "--wd",
            *self._credentials, *command,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
            env=self._variables,
        )  # fmt: skip
        return await child.wait()

    async def end(self, grace_seconds: float) -> None:
        """As a kubelet does: SIGTERM, and SIGKILL when it has had its time."""
        if self._child.returncode is None:
            self._child.terminate()
            try:
                await asyncio.wait_for(self._child.wait(), grace_seconds)
            except TimeoutError:
                self.kill()
        await self._child.wait()

    def kill(self) -> None:
        if self._child.returncode is None:
            self._child.kill()


async def start(
    pod: Object,
    container: Object,
    folder: Path,
    network: Network,
    hosts: Path,
    volumes: Mapping[str, Folder],
    services: Mapping[str, str],
) -> Container:
    """Start a container of a pod, which has an address; the folder becomes its root."""
    command = [*container.get("command", ENTRYPOINT), *container.get("args", [])]
    security = pod["spec"].get("securityContext", {}) | container.get("securityContext", {})
    # HOME is what runc sets for a user who is in no list.
    given = {"PATH": PATH, "HOME": "/", "HOSTNAME": pod["metadata"]["name"]}
    variables = {**services, **given, **_variables(pod, container)}
    user, group = security.get("runAsUser", 10001), security.get("runAsGroup", 10001)  # the image's own
    credentials = [
        *("/usr/bin/setpriv", f"--reuid={user}", f"--regid={group}", f"--groups={security.get('fsGroup', group)}"),
        *("--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", "--pdeathsig=KILL"),
    ]
    script = [
        *_root(folder, hosts),
        *_mounts(folder, container, volumes),
        *([f"mount -o remount,ro {folder}"] if security.get("readOnlyRootFilesystem") else []),
        "exec 1>&2",
        f"exec /usr/sbin/chroot {folder} {shlex.join([*credentials, *_expanded(command, variables)])}",
    ]
    child = await asyncio.create_subprocess_exec(
        "/usr/bin/nsenter", f"--net={network.path}", "/usr/bin/unshare", "--mount", "--propagation", "private",
        "/bin/sh", "-ec", "\n".join(script),
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        env=variables, cwd="/",
    )  # fmt: skip
    return Container(child, credentials, variables)


def _variables(pod: Object, container: Object) -> dict[str, str]:
    if "envFrom" in container:
        raise Unknown("envFrom")
    found = {}
    for each in container.get("env", []):
        source = each.get("valueFrom", {})
        if source.keys() - {"fieldRef"}:
            raise Unknown(f"a variable from {', '.join(source)}")
        found[each["name"]] = field(pod, source["fieldRef"]["fieldPath"]) if source else each.get("value", "")
    return found


def _expanded(command: list[str], variables: Mapping[str, str]) -> list[str]:
    """`$(NAME)` in a command is the kubelet's to replace."""
    for name, value in variables.items():
        command = [word.replace(f"$({name})", value) for word in command]
    return command


def _root(folder: Path, hosts: Path) -> list[str]:
    """What an image has, and a runtime adds."""
    lines = [f"mkdir -p {folder}", f"mount -t tmpfs -o mode=755 root {folder}", *_bound(folder, Path("/usr"))]
    for name in USR:
        here = Path("/", name)
        if here.is_symlink():
            lines.append(f"ln -s {here.readlink()} {folder / name}")
        elif here.is_dir():
            lines += _bound(folder, here)
    for place in sorted({Path(sys.prefix), Path(sys.base_prefix), PROJECT / "proxy"}):
        lines += _bound(folder, place)
    for name in ETC:
        if (here := Path("/etc", name)).exists():
            lines += _bound(folder, here)
    return [
        *lines,
        *_bound(folder, hosts, "/etc/hosts"),
        f"echo 'hosts: files' > {folder}/etc/nsswitch.conf",
        f"mkdir {folder}/proc {folder}/dev",
        f"mount --rbind /proc {folder}/proc",
        f"mount --rbind /dev {folder}/dev",
    ]


def _mounts(folder: Path, container: Object, volumes: Mapping[str, Folder]) -> list[str]:
    lines = []
    for mount in container.get("volumeMounts", []):
        if "subPath" in mount or "subPathExpr" in mount:
            raise Unknown("a subPath, which does not follow its ConfigMap")
        lines += _bound(folder, volumes[mount["name"]].path, mount["mountPath"], read_only=mount.get("readOnly", False))
    return lines


def _bound(root: Path, here: Path, there: str | None = None, read_only: bool = True) -> list[str]:
    to = root / (there or str(here)).lstrip("/")
    made = f"mkdir -p {to}" if here.is_dir() else f"mkdir -p {to.parent}; : > {to}"
    return [made, f"mount --bind {here} {to}", *([f"mount -o remount,bind,ro {to}"] if read_only else [])]
