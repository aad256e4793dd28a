"""What the Go modules of `go/` give: programs, built once and kept in a cache, and the definitions of kinds.

Versions stand in each go.mod, hashes in each go.sum; nothing that differs from them is built or used.
Run as a program it does all of this ahead of the tests, since the builds take longer than a test may.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from caching import Missing, alone, cache, say, sha256

MODULES = Path(__file__).parent / "go"
ATTEMPTS = 3  # a module may fail to arrive; what has arrived and what is compiled is not done again
BUILD_SECONDS = 3600


@dataclass(frozen=True, slots=True)
class Build:
    """Programs made from one folder of `go/`."""

    name: str  # of the cache
    folder: str
    programs: Mapping[str, str]  # by name, the package
    goes_by: str  # the module whose version is theirs
    stamped: tuple[str, ...] = ()  # packages that want to be told the version, as Kubernetes' hack/lib/version.sh does

    @property
    def version(self) -> str:
        text = (MODULES / self.folder / "go.mod").read_text()
        found = re.search(rf"^\s*(?:require )?{re.escape(self.goes_by)} v(\S+)", text, re.MULTILINE)
        assert found is not None, f"{self.folder}/go.mod does not require {self.goes_by}"
        return found[1]

    @property
    def cache(self) -> Path:
        return cache(f"{self.name}-{self.version}")

    @property
    def ldflags(self) -> str:
        major, minor, _ = self.version.split(".", 2)
        values = {"gitVersion": f"v{self.version}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "archive"}
        return " ".join(
            ["-s", "-w", *(f"-X {package}.{key}={values[key]}" for package in self.stamped for key in values)]
        )

    @property
    def recipe(self) -> str:
        """What the programs are made of, as one digest."""
        folder = MODULES / self.folder
        parts = [file.read_bytes() for file in (folder / "go.mod", folder / "go.sum", *sorted(folder.glob("*.go")))]
        return hashlib.sha256(b"\0".join([*parts, self.ldflags.encode()])).hexdigest()


API_SERVER = Build(
    "kube-apiserver",
    "server",
    {"kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver", "etcd": "go.etcd.io/etcd/server/v3"},
    goes_by="k8s.io/kubernetes",
    stamped=("k8s.io/client-go/pkg/version", "k8s.io/component-base/version"),
)
CHART_TOOLS = Build(
    "chart-tools",
    "chart",
    {
        "helm3": "helm.sh/helm/v3/cmd/helm",
        "helm4": "helm.sh/helm/v4/cmd/helm",
        "helm-unittest": "github.com/helm-unittest/helm-unittest/cmd/helm-unittest",
        "kubeconform": "github.com/yannh/kubeconform/cmd/kubeconform",
    },
    goes_by="helm.sh/helm/v4",
)
RCLONE = Build("rclone", "shipping", {"rclone": "."}, goes_by="github.com/rclone/rclone")
VERSITYGW = Build(
    "versitygw",
    "bucket",
    {"versitygw": "github.com/versity/versitygw/cmd/versitygw"},
    goes_by="github.com/versity/versitygw",
)
ISTIO = Build("istio", "istio", {"istio": "."}, goes_by="istio.io/istio")
KUBECTL = Build("kubectl", "kubectl", {"kubectl": "."}, goes_by="k8s.io/kubectl")
WORKFLOW_TOOLS = Build(
    "workflow-tools",
    "workflows",
    {
        "actionlint": "github.com/rhysd/actionlint/cmd/actionlint",
        "crane": "github.com/google/go-containerregistry/cmd/crane",
    },
    goes_by="github.com/rhysd/actionlint",
)
PULSAR_CLIENT = Build("pulsar-client-go", "pulsar", {"told": "."}, goes_by="github.com/apache/pulsar-client-go")
BUILDS = (API_SERVER, CHART_TOOLS, RCLONE, ISTIO, KUBECTL, WORKFLOW_TOOLS, PULSAR_CLIENT)
FULL = (*BUILDS, VERSITYGW)
DEFINITIONS = (
    "sigs.k8s.io/gateway-api",
    "istio.io/api",
    "github.com/prometheus-operator/prometheus-operator",
    "github.com/envoyproxy/gateway",
    "github.com/traefik/traefik/v3",
    "github.com/kubeflow/spark-operator/v2",
)


def built(build: Build) -> dict[str, Path]:
    """The programs, if they are in the cache, whole, and made from what go.mod and go.sum say today."""
    folder = build.cache
    try:
        whole = json.loads((folder / "whole.json").read_text())
        same = whole == {"made of": build.recipe, **{name: sha256(folder / name) for name in build.programs}}
    except FileNotFoundError:
        same = False
    if not same:
        raise Missing(f"{build.name} {build.version} is not built: `make e2e` does it, or `python {__file__}`")
    return {name: folder / name for name in build.programs}


def make(build: Build) -> dict[str, Path]:
    """Build what is not built. Where two do so at once, the second waits for the first and finds it done."""
    folder = build.cache
    with alone(folder):
        try:
            return built(build)
        except Missing:
            say(f"building {', '.join(build.programs)} into {folder}; once, some minutes")
        unfinished = folder / "unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        for name, package in build.programs.items():
            _go(build.folder, "build", "-ldflags", build.ldflags, "-o", str(unfinished / name), package)
        whole = {"made of": build.recipe, **{name: sha256(unfinished / name) for name in build.programs}}
        (unfinished / "whole.json").write_text(json.dumps(whole))
        for name in (*build.programs, "whole.json"):
            os.replace(unfinished / name, folder / name)
        unfinished.rmdir()
        return built(build)


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


def main(builds: Sequence[Build]) -> None:
    try:
        for module in DEFINITIONS:
            sources(module)
        for build in builds:
            make(build)
            say(f"{build.name} {build.version}: {build.cache}")
    except Missing as missing:
        sys.exit(str(missing))


if __name__ == "__main__":
    main(FULL if sys.argv[1:] == ["full"] else BUILDS)
