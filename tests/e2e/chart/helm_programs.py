"""Helm 3 and Helm 4, as their users run them."""

import asyncio
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from go_modules import CHART_TOOLS, built

CHART = Path(__file__).parents[3] / "helm/pulsar-ingress-proxy"
EXAMPLES = sorted((CHART / "ci").glob("*-values.yaml"))
VERSIONS = ("helm3", "helm4")
SECONDS = 120


@cache
def tools() -> dict[str, Path]:
    """The programs. That they are whole is looked at once: it takes a second."""
    return built(CHART_TOOLS)


@dataclass(frozen=True, slots=True)
class Done:
    """What became of a command."""

    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        return self.out + self.err


@dataclass(frozen=True, slots=True)
class Helm:
    """One version of it, with files of its own."""

    version: str
    home: Path
    kubeconfig: Path | None = None
    namespace: str = "default"

    async def run(self, *arguments: str | Path) -> Done:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "HELM_NAMESPACE": self.namespace,
            "KUBECONFIG": str(self.kubeconfig or self.home / "no-cluster"),
        }
        child = await asyncio.create_subprocess_exec(
            tools()[self.version],
            *map(str, arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
            cwd=self.home,
        )
        try:
            out, err = await asyncio.wait_for(child.communicate(), SECONDS)
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()
        assert child.returncode is not None
        return Done(child.returncode, out.decode(), err.decode())

    async def __call__(self, *arguments: str | Path) -> str:
        """What it says; it is to succeed."""
        done = await self.run(*arguments)
        assert done.code == 0, f"helm {' '.join(map(str, arguments))}\n{done.said}"
        return done.out

    def values(self, name: str, values: dict[str, Any]) -> Path:
        """A file of values, to be given by -f."""
        file = self.home / f"{name}.yaml"
        file.write_text(yaml.safe_dump(values))
        return file


def documents(text: str) -> list[dict[str, Any]]:
    """The objects of a manifest."""
    return [each for each in yaml.load_all(text, Loader=yaml.CSafeLoader) if each is not None]
