"""The files that a pod finds in its volumes, written and replaced as a kubelet does."""

import base64
import itertools
import os
import shutil
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from apiclient import Api, Object, Refused

_versions = itertools.count()


class Unknown(Exception):
    """A manifest asks for what this stand-in does not do."""


class Folder:
    """Files that change all at once: kubelet's AtomicWriter, whose `..data` is a link that is replaced by renaming."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True)
        path.chmod(0o777)

    def write(self, files: Mapping[str, str], mode: int = 0o644, owner: int = 0) -> None:
        """Put these in place of what is there. What is the same stays untouched, as with a kubelet."""
        data = self.path / "..data"
        if data.exists() and {file.name: file.read_text() for file in data.iterdir()} == files:
            return
        new = self.path / f"..version-{next(_versions)}"
        new.mkdir()
        for name, content in files.items():
            file = new / name
            file.write_text(content)
            file.chmod(mode)
            os.chown(file, owner, owner)
        old = data.resolve() if data.exists() else None
        (self.path / "..data_tmp").symlink_to(new.name)
        os.replace(self.path / "..data_tmp", data)
        for name in files:
            if not (self.path / name).is_symlink():
                (self.path / name).symlink_to(f"..data/{name}")
        for link in self.path.iterdir():
            if not link.name.startswith("..") and link.name not in files:
                link.unlink()
        if old is not None:
            shutil.rmtree(old)


class Volumes:
    """The volumes of one pod. `refresh` writes anew what ConfigMaps say now."""

    def __init__(self, api: Api, pod: Object, folder: Path) -> None:
        self._api = api
        self._pod = pod
        self._namespace: str = pod["metadata"]["namespace"]
        self._owner: int = pod["spec"].get("securityContext", {}).get("runAsUser", 0)
        self._sources: dict[str, Object] = {each["name"]: each for each in pod["spec"].get("volumes", [])}
        self.folders = {name: Folder(folder / name) for name in self._sources}
        self._token: str | None = None

    async def refresh(self) -> None:
        for name, source in self._sources.items():
            known: dict[str, Callable[[Any], Awaitable[dict[str, str]]]] = {
                "configMap": self._config_map,
                "secret": self._secret,
                "downwardAPI": self._downward,
                "projected": self._projected,
            }
            (kind,) = source.keys() - {"name"}
            if kind == "emptyDir":
                continue
            if kind not in known:
                raise Unknown(f"a volume of kind {kind}")
            files = await known[kind](source[kind])
            self.folders[name].write(files, source[kind].get("defaultMode", 0o644), self._owner)

    async def _projected(self, volume: Object) -> dict[str, str]:
        files: dict[str, str] = {}
        for source in volume["sources"]:
            ((kind, value),) = source.items()
            match kind:
                case "configMap":
                    files |= await self._config_map(value)
                case "downwardAPI":
                    files |= await self._downward(value)
                case "serviceAccountToken":
                    account = self._pod["spec"].get("serviceAccountName", "default")
                    self._token = self._token or await self._api.service_account_token(self._namespace, account)
                    files[value["path"]] = self._token
                case _:
                    raise Unknown(f"a projected {kind}")
        return files

    async def _config_map(self, source: Object) -> dict[str, str]:
        return await self._keys("ConfigMap", source["name"], source)

    async def _secret(self, source: Object) -> dict[str, str]:
        keys = await self._keys("Secret", source["secretName"], source)
        return {key: base64.b64decode(value).decode() for key, value in keys.items()}

    async def _keys(self, kind: str, name: str, source: Object) -> dict[str, str]:
        where = {"apiVersion": "v1", "kind": kind, "metadata": {"namespace": self._namespace, "name": name}}
        try:
            data: dict[str, str] = (await self._api.get(where)).get("data", {})
        except Refused as refused:
            if refused.status == 404 and source.get("optional"):
                return {}
            raise
        if "items" in source:
            return {item["path"]: data[item["key"]] for item in source["items"]}
        return data

    async def _downward(self, source: Object) -> dict[str, str]:
        return {item["path"]: field(self._pod, item["fieldRef"]["fieldPath"]) for item in source["items"]}


def field(pod: Object, path: str) -> str:
    """What the downward API tells of a pod."""
    match path:
        case "metadata.name" | "metadata.namespace" | "metadata.uid" | "spec.nodeName" | "spec.serviceAccountName":
            part, key = path.split(".")
            return str(pod[part][key])
        case "status.podIP":
            return str(pod["status"]["podIP"])
        case "metadata.labels":
            return "\n".join(f'{key}="{value}"' for key, value in sorted(pod["metadata"].get("labels", {}).items()))
        case _:
            raise Unknown(f"the field {path}")
