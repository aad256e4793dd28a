"""Manifests held against the schemas of their kinds, where nothing may stand that the kind does not have.

By two judges: kubernetes-validate, which has the schemas of Kubernetes' own kinds and says nothing of others, and
kubeconform, which gets those and the schemas of custom kinds, and knows all kinds or refuses.
"""

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from apiclient import Object
from custom_resources import all_kinds
from go_modules import API_SERVER
from helm_programs import tools
from kind_schemas import write_core_schemas, write_custom_schemas

KUBERNETES = ".".join(API_SERVER.version.split(".")[:2])


@dataclass(frozen=True, slots=True)
class Validator:
    """The schemas, in a folder."""

    folder: Path

    async def faults(self, manifests: Mapping[str, Sequence[Object]]) -> list[str]:
        """What is wrong with these, by name of the manifest; empty if nothing is."""
        files = []
        for name, objects in manifests.items():
            file = self.folder / "manifests" / f"{name}.yaml"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(yaml.dump_all(objects, Dumper=yaml.CSafeDumper))
            files.append(file)
        by_first, by_second = await asyncio.gather(_by_kubernetes_validate(files), self._by_kubeconform(files))
        count = sum(map(len, manifests.values()))
        assert by_second[0] == count, f"of {count} objects {by_second[0]} were looked at"
        return by_first + by_second[1]

    async def _by_kubeconform(self, files: Sequence[Path]) -> tuple[int, list[str]]:
        """How many it has looked at, and the faults."""
        locations = (
            f"{self.folder}/core/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json",
            f"{self.folder}/custom/{{{{.Group}}}}/{{{{.ResourceKind}}}}_{{{{.ResourceAPIVersion}}}}.json",
        )
        places = [word for location in locations for word in ("-schema-location", location)]
        program = tools()["kubeconform"]
        found = json.loads(await _said(program, "-strict", "-verbose", "-output", "json", *places, *files))["resources"]
        return len(found), [
            f"{each['filename']}: {each['kind']} {each['name']}: {each['msg']}"
            for each in found
            if each["status"] != "statusValid"
        ]


async def _by_kubernetes_validate(files: Sequence[Path]) -> list[str]:
    options = ("--strict", "--quiet", "--no-warn", "-k", KUBERNETES)
    return (await _said(sys.executable, "-m", "kubernetes_validate", *options, *files)).splitlines()


async def _said(*command: str | Path) -> str:
    child = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    out, _ = await child.communicate()
    return out.decode()


def validator(folder: Path) -> Validator:
    """Write the schemas into a new folder."""
    write_core_schemas(KUBERNETES, folder / "core")
    write_custom_schemas(all_kinds(), KUBERNETES, folder / "custom")
    return Validator(folder)
