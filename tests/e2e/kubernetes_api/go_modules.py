"""What the Go modules of `go/` give: kube-apiserver and etcd, built once and kept in a cache, and the CRDs.

Versions stand in each go.mod, hashes in each go.sum; nothing that differs from them is built or used.
Run as a program it does all of this ahead of the tests, since the build takes longer than a test may.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

MODULES = Path(__file__).parent / "go"
PACKAGES = {"kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver", "etcd": "go.etcd.io/etcd/server/v3"}
ATTEMPTS = 3  # a module may fail to arrive; what has arrived and what is compiled is not done again
BUILD_SECONDS = 3600


class Missing(Exception):
    """A program that the tests need is not there; never a reason to skip them."""


@dataclass(frozen=True, slots=True)
class Programs:
    """Where the two programs are, and which Kubernetes it is."""

    version: str
    api_server: Path
    etcd: Path


def built() -> Programs:
    """The programs, if they are in the cache, whole, and made from what go.mod and go.sum say today."""
    folder = _cache()
    try:
        whole = json.loads((folder / "whole.json").read_text())
        same = whole == {"made of": _recipe(), **{name: _sha256(folder / name) for name in PACKAGES}}
    except FileNotFoundError:
        same = False
    if not same:
        raise Missing(f"kube-apiserver {_version()} is not built: `make e2e` does it, or `python {__file__}`")
    return Programs(_version(), folder / "kube-apiserver", folder / "etcd")


def build() -> Programs:
    """Build what is not built. Where two do so at once, the second waits for the first and finds it done."""
    folder = _cache()
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder / "lock"):
        try:
            return built()
        except Missing:
            _say(f"building kube-apiserver {_version()} and etcd into {folder}; once, about ten minutes on two cores")
        unfinished = folder / "unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        for name, package in PACKAGES.items():
            _go("server", "build", "-ldflags", _ldflags(), "-o", str(unfinished / name), package)
        whole = {"made of": _recipe(), **{name: _sha256(unfinished / name) for name in PACKAGES}}
        (unfinished / "whole.json").write_text(json.dumps(whole))
        for name in (*PACKAGES, "whole.json"):
            os.replace(unfinished / name, folder / name)
        unfinished.rmdir()
        return built()


def sources(module: str) -> Path:
    """The unpacked sources of a module that go/crds requires."""
    return Path(json.loads(_go("crds", "mod", "download", "-json", module))["Dir"])


def _go(folder: str, *arguments: str) -> str:
    """Run go in a module; its answer. How it reaches modules is the machine's own setting."""
    go = shutil.which("go")
    if go is None:
        raise Missing("go is missing: `make e2e` needs Go 1.26 or newer to build kube-apiserver")
    # Whatever the machine's settings say: versions come from go.mod, and a hash that is not go.sum's is an error.
    environment = os.environ | {
        "GOFLAGS": "-mod=readonly -trimpath -buildvcs=false",
        "GOWORK": "off",
        "CGO_ENABLED": "0",
    }
    command = ["setpriv", "--pdeathsig", "TERM", "nice", "-n", "10", go, *arguments]
    for _ in range(ATTEMPTS):
        done = subprocess.run(
            command, cwd=MODULES / folder, env=environment, stdout=subprocess.PIPE, text=True, timeout=BUILD_SECONDS
        )
        if done.returncode == 0:
            return done.stdout
    raise Missing(f"go {' '.join(arguments)}: failed {ATTEMPTS} times\n{done.stdout}")


def _version() -> str:
    found = re.search(r"^\tk8s\.io/kubernetes v(\S+)", (MODULES / "server/go.mod").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


def _ldflags() -> str:
    """The version, which the module does not carry, as Kubernetes' own hack/lib/version.sh sets it."""
    version = _version()
    major, minor, _ = version.split(".")
    values = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "archive"}
    packages = ("k8s.io/client-go/pkg/version", "k8s.io/component-base/version")
    return " ".join(["-s", "-w", *(f"-X {package}.{key}={values[key]}" for package in packages for key in values)])


def _recipe() -> str:
    parts = [(MODULES / "server" / name).read_bytes() for name in ("go.mod", "go.sum")]
    return hashlib.sha256(b"\0".join([*parts, _ldflags().encode()])).hexdigest()


def _cache() -> Path:
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return caches / "pulsar-ingress-proxy" / f"kube-apiserver-{_version()}"


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


@contextmanager
def _alone(file: Path) -> Iterator[None]:
    """The lock goes with the process that holds it, however that ends."""
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def main() -> None:
    try:
        programs = build()
        for module in ("sigs.k8s.io/gateway-api", "istio.io/api"):
            sources(module)
    except Missing as missing:
        sys.exit(str(missing))
    _say(f"kube-apiserver {programs.version}: {programs.api_server}")


if __name__ == "__main__":
    main()
