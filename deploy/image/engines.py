"""Two ways to build and run the image: a Docker daemon if one answers, else buildah, and runc as Docker would call it.

Both run a container alike: as the image's own user, on a read-only root, without capabilities or new privileges, and on
the machine's network, where the brokers of a trial are.
"""

import json
import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from deploy.image.base import PACKAGES, SUITE, Missing, alone, archive, cache, key, say

REPOSITORY = Path(__file__).parents[2]
DOCKERFILE = REPOSITORY / "deploy/image/Dockerfile"


@dataclass(frozen=True, slots=True)
class Recipe:
    """What to build, and what to call it."""

    tag: str
    arguments: Mapping[str, str]
    """Build arguments; without BASE it is the Dockerfile's, or where nothing can be pulled one that is made here."""
    secrets: Mapping[str, Path]
    dockerfile: Path = DOCKERFILE
    packages: tuple[str, ...] = PACKAGES
    """Debian's, in a base that is made here."""
    lasting: str | None = None
    """The stage that is long in the making and seldom changes: its layers are kept for the next build."""

    def options(self, **more: str) -> list[str]:
        arguments = [f"--build-arg={name}={value}" for name, value in {**more, **self.arguments}.items()]
        secrets = [f"--secret=id={name},src={file}" for name, file in self.secrets.items()]
        return [*arguments, *secrets, f"--file={self.dockerfile}", str(REPOSITORY)]


class Container(Protocol):
    """One that may be run: the command that runs it till its end, the same with another program than its own, and one
    that runs something else in it meanwhile."""

    def run(self, *arguments: str) -> list[str]: ...

    def instead(self, program: str, *arguments: str) -> list[str]: ...

    def inside(self, *command: str) -> list[str]: ...


class Image(Protocol):
    @property
    def root(self) -> Path:
        """Its files."""
        ...

    @property
    def config(self) -> dict[str, Any]:
        """User, Env, Entrypoint, Cmd, Labels, Healthcheck."""
        ...

    def container(
        self,
        mounts: Mapping[Path, str],
        variables: Mapping[str, str] | None = None,
        writable: Mapping[Path, str] | None = None,
    ) -> Container:
        """What of this machine stands where in the container: `mounts` are read-only there."""
        ...


class Engine(Protocol):
    name: str

    def build(self, recipe: Recipe) -> None: ...

    def save(self, tag: str, file: Path) -> None:
        """As an archive that `docker load` and `podman load` read."""
        ...

    @contextmanager
    def opened(self, tag: str) -> Iterator[Image]: ...


def engine() -> Engine:
    """The one that this machine has; raises Missing where it has none."""
    if shutil.which("docker") and subprocess.run(["docker", "info"], capture_output=True).returncode == 0:
        return Docker()
    missing = [program for program in ("buildah", "runc") if shutil.which(program) is None]
    if missing:
        raise Missing(
            f"no Docker daemon answers, and not installed: {', '.join(missing)}. Do: sh deploy/image/setup.sh"
        )
    return Buildah()


class Docker:
    name = "docker"

    def build(self, recipe: Recipe) -> None:
        _do(["docker", "build", "--quiet", f"--tag={recipe.tag}", *recipe.options()], DOCKER_BUILDKIT="1")

    def save(self, tag: str, file: Path) -> None:
        _do(["docker", "save", "--output", str(file), tag])

    @contextmanager
    def opened(self, tag: str) -> Iterator[Image]:
        [inspected] = json.loads(_do(["docker", "image", "inspect", tag]))
        made = _do(["docker", "create", tag]).strip()
        try:
            with tempfile.TemporaryDirectory() as root:
                with subprocess.Popen(["docker", "export", made], stdout=subprocess.PIPE) as exported:
                    _do(["tar", "-C", root, "-x"], stdin=exported.stdout)
                yield _DockerImage(Path(root), inspected["Config"], tag)
        finally:
            _do(["docker", "rm", made])


@dataclass(frozen=True, slots=True)
class _DockerImage:
    root: Path
    config: dict[str, Any]
    tag: str

    def container(
        self,
        mounts: Mapping[Path, str],
        variables: Mapping[str, str] | None = None,
        writable: Mapping[Path, str] | None = None,
    ) -> Container:
        volumes = [f"--volume={source}:{target}:ro" for source, target in mounts.items()]
        volumes += [f"--volume={source}:{target}" for source, target in (writable or {}).items()]
        settings = [f"--env={name}={value}" for name, value in (variables or {}).items()]
        return _DockerContainer(self.tag, _name(), (*volumes, *settings))


@dataclass(frozen=True, slots=True)
class _DockerContainer:
    tag: str
    name: str
    options: tuple[str, ...]

    def run(self, *arguments: str) -> list[str]:
        return [*self._begin(), self.tag, *arguments]

    def instead(self, program: str, *arguments: str) -> list[str]:
        return [*self._begin(), f"--entrypoint={program}", self.tag, *arguments]

    def _begin(self) -> list[str]:
        guards = ["--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--network=host"]
        return ["docker", "run", "--rm", f"--name={self.name}", *guards, *self.options]

    def inside(self, *command: str) -> list[str]:
        return ["docker", "exec", self.name, *command]


class Buildah:
    """Its storage is this project's own, in the cache, so that it meets no other's."""

    name = "buildah and runc"

    def __init__(self) -> None:
        store = cache() / "storage"
        store.mkdir(parents=True, exist_ok=True)
        self._lock = store / "pulsar-ingress-proxy.lock"
        self._buildah = ["buildah", f"--root={store}", f"--runroot={cache() / 'run'}"]

    def build(self, recipe: Recipe) -> None:
        with alone(self._lock):
            base = {} if "BASE" in recipe.arguments else {"BASE": self._base(recipe.packages)}
            # OCI's format of images has no health check; Docker's has, and is read everywhere.
            how = ["--isolation=chroot", "--format=docker", "--quiet"]
            if recipe.lasting:  # as an image of its own, or it would go with what is pruned
                how += ["--layers", "--force-rm"]
                stage = (f"--target={recipe.lasting}", f"--tag={recipe.tag}-{recipe.lasting}")
                self._do("build", *how, *stage, *recipe.options(**base))
            self._do("build", *how, f"--tag={recipe.tag}", *recipe.options(**base))
            self._tidy()

    def save(self, tag: str, file: Path) -> None:
        file.unlink(missing_ok=True)  # an archive is not added to
        self._do("push", "--quiet", tag, f"docker-archive:{file}:{tag}")

    @contextmanager
    def opened(self, tag: str) -> Iterator[Image]:
        config = json.loads(self._do("inspect", "--type=image", tag))["Docker"]["config"]
        name = _name()
        with alone(self._held(name)):
            self._do("from", "--pull-never", f"--name={name}", tag)
            try:
                root = Path(self._do("mount", name).strip())
                with tempfile.TemporaryDirectory() as bundles:
                    yield _RuncImage(root, config, Path(bundles))
            finally:
                self._do("rm", name)
        self._held(name).unlink()

    def _held(self, container: str) -> Path:
        """Locked as long as the process that opened the container lives."""
        return self._lock.with_name(f"{container}.lock")

    def _tidy(self) -> None:
        """Remove the containers of processes that were killed, and the images that nothing names or uses now."""
        for container in self._do("containers", "--format={{.ContainerName}}").split():
            with suppress(BlockingIOError), alone(self._held(container), wait=False):
                self._do("rm", container)
                self._held(container).unlink()
        try:
            self._do("rmi", "--prune")
        except Missing as said:
            say(f"not all that is old was removed: {said}")  # another process may hold one open

    def _base(self, packages: Sequence[str]) -> str:
        tag = f"localhost/pulsar-ingress-proxy-base:{SUITE}-{key(packages)}"
        if not self._do("images", "--quiet", "--filter", f"reference={tag}").strip():
            made = self._do("from", "scratch").strip()
            self._do("add", "--quiet", made, str(archive(packages)), "/")
            self._do("commit", "--quiet", "--rm", made, tag)
        return tag

    def _do(self, *arguments: str) -> str:
        return _do([*self._buildah, *arguments])


@dataclass(frozen=True, slots=True)
class _RuncImage:
    root: Path
    config: dict[str, Any]
    bundles: Path

    def container(
        self,
        mounts: Mapping[Path, str],
        variables: Mapping[str, str] | None = None,
        writable: Mapping[Path, str] | None = None,
    ) -> Container:
        name = _name()
        bundle = self.bundles / name
        bundle.mkdir()
        _do(["runc", "spec", "--bundle", str(bundle)])
        uid, _, gid = self.config["User"].partition(":")
        settings = [f"{name}={value}" for name, value in (variables or {}).items()]
        binds = [
            {"type": "bind", "source": str(source), "destination": target, "options": ["bind", how]}
            for how, places in (("ro", mounts), ("rw", writable or {}))
            for source, target in places.items()
        ]
        spec = json.loads((bundle / "config.json").read_text())
        spec["root"] = {"path": str(self.root), "readonly": True}
        spec["mounts"] = [mount for mount in spec["mounts"] if mount["type"] != "cgroup"] + binds
        spec["linux"]["namespaces"] = [space for space in spec["linux"]["namespaces"] if space["type"] != "network"]
        spec["process"] |= {
            "terminal": False,
            "user": {"uid": int(uid), "gid": int(gid)},
            "env": [*self.config["Env"], *settings],
            "cwd": self.config.get("WorkingDir") or "/",
            "capabilities": {},
            "noNewPrivileges": True,
        }
        return _RuncContainer(bundle, name, spec, (*self.config["Entrypoint"],), (*self.config["Cmd"],))


@dataclass(frozen=True, slots=True)
class _RuncContainer:
    bundle: Path
    name: str
    spec: dict[str, Any]
    entrypoint: tuple[str, ...]
    default: tuple[str, ...]

    def run(self, *arguments: str) -> list[str]:
        return self._begin(*self.entrypoint, *(arguments or self.default))

    def instead(self, program: str, *arguments: str) -> list[str]:
        return self._begin(program, *arguments)

    def _begin(self, *command: str) -> list[str]:
        self.spec["process"]["args"] = [*command]
        (self.bundle / "config.json").write_text(json.dumps(self.spec))
        return ["runc", "run", "--bundle", str(self.bundle), self.name]

    def inside(self, *command: str) -> list[str]:
        return ["runc", "exec", self.name, *command]


def _name() -> str:
    return f"pulsar-ingress-proxy-{uuid.uuid4().hex[:12]}"


def _do(command: Sequence[str], stdin: Any = subprocess.DEVNULL, **variables: str) -> str:
    """Run to the end; its answer. What it says is shown where it fails."""
    done = subprocess.run(command, stdin=stdin, capture_output=True, text=True, env={**os.environ, **variables})
    if done.returncode != 0:
        last = "\n".join((done.stdout + done.stderr).splitlines()[-30:])
        raise Missing(f"{' '.join(command[:6])} … failed with {done.returncode}:\n{last}")
    return done.stdout
