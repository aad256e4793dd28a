"""A folder on this machine or in an object store: lists, reads and writes its files, for delta-rs and Spark as well.

Credentials come from the environment. obstore and delta-rs use the same object store client and the same variables;
`spark_settings` passes to Spark what its S3 client does not read from the environment.
"""

import errno
import os
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from obstore.exceptions import BaseError
from obstore.store import ObjectStore, from_url

from pulsar_ingress_pipeline.faults import PipelineFault

_HIDDEN = re.compile(r"(^|/)[._]")
_REMOTE = re.compile(r"(s3|gs|abfss?)://")
_AZURE = (
    "AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_SAS_KEY", "AZURE_CLIENT_ID",
    "AZURE_CLIENT_SECRET", "AZURE_TENANT_ID",
)  # fmt: skip
_VARIABLES = {
    "s3": (
        "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION",
        "AWS_ENDPOINT_URL",
    ),
    "gs": ("GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_KEY", "GOOGLE_APPLICATION_CREDENTIALS"),
    "abfs": _AZURE,
    "abfss": _AZURE,
}  # fmt: skip
"""Variables that executors get from the driver. Without any, object stores use the identity of the pod."""
_ROW_GROUP = 1 << 17
"""Rows that a reader can skip at once."""


@dataclass(frozen=True, slots=True)
class File:
    """A file, by its path below a folder."""

    path: str
    size: int

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file of a table."""

    path: str
    size: int
    rows: int
    partition: Mapping[str, str] = field(default_factory=dict)

    @property
    def hour(self) -> str:
        """The hour of a file of `events`: `2026-11-16T09`."""
        return hour_of(self.partition)


def hour_of(partition: Mapping[str, str]) -> str:
    return f"{partition['date']}T{int(partition['hour']):02d}"


@dataclass(frozen=True, slots=True)
class Storage:
    """A folder. Spark's executors get a copy of this and use the folder in the same way."""

    url: str
    options: tuple[tuple[str, str], ...] = ()
    """Options of delta-rs for an object store. They may be secrets and are never printed."""

    @classmethod
    def of(cls, url: str, environ: Mapping[str, str] = os.environ) -> "Storage":
        """The folder that a user names: a path, or a URL."""
        if "://" not in url:
            return cls(str(Path(url).absolute()))
        if url.startswith("file://"):
            return cls("/" + url.removeprefix("file://").lstrip("/").rstrip("/"))
        url = re.sub("^s3a?://", "s3://", url).rstrip("/")
        remote = _REMOTE.match(url)
        if remote is None:
            raise PipelineFault(f"{url}: is neither a path nor a URL of an object store: s3://, gs://, abfss://")
        return cls(url, tuple((name, environ[name]) for name in _VARIABLES[remote[1]] if name in environ))

    def __repr__(self) -> str:
        return f"Storage({self.url!r})"

    @property
    def for_delta(self) -> dict[str, str]:
        """The storage options for delta-rs."""
        return dict(self.options) | ({"AWS_ALLOW_HTTP": "true"} if self._is_without_tls else {})

    @property
    def _is_without_tls(self) -> bool:
        return dict(self.options).get("AWS_ENDPOINT_URL", "").startswith("http:")

    @property
    def is_local(self) -> bool:
        return self.url.startswith("/")

    def below(self, path: str) -> "Storage":
        return Storage(f"{self.url}/{path}", self.options)

    def spark_url(self, path: str) -> str:
        """A file's URL for Spark: Hadoop has its own scheme for S3, and expands patterns."""
        url = f"file://{self.url}/{path}" if self.is_local else re.sub("^s3:", "s3a:", f"{self.url}/{path}")
        return re.sub(r"([*?{}\[\]\\])", r"\\\1", url)

    def files(self, endings: tuple[str, ...] = ("",)) -> list[File]:
        """All files below, except hidden ones (`.` and `_`); none if the folder does not exist."""
        with _explained(self.url):
            if self.is_local:
                found = self._local_files()
            else:
                found = [File(one["path"], one["size"]) for listed in obstore.list(_store(self)) for one in listed]
        shown = [file for file in found if file.path.endswith(endings) and not _HIDDEN.search(file.path)]
        return sorted(shown, key=lambda file: (file.name, file.path))

    def _local_files(self) -> list[File]:
        folder = Path(self.url)
        if folder.exists() and not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        paths = (Path(place, name) for place, _, names in os.walk(folder, followlinks=True) for name in names)
        return [File(str(path.relative_to(folder)), path.stat().st_size) for path in paths if path.is_file()]

    def folders(self, path: str = "") -> list[str]:
        """The names of the folders in a folder; none if it does not exist."""
        with _explained(f"{self.url}/{path}"):
            if self.is_local:
                folder = Path(self.url, path)
                return sorted(one.name for one in folder.iterdir() if one.is_dir()) if folder.exists() else []
            found = obstore.list_with_delimiter(_store(self), path or None)["common_prefixes"]
            return sorted(one.rpartition("/")[2] for one in found)

    def exists(self, path: str = "") -> bool:
        """Whether there is such a file, or a folder that is not empty."""
        if self.is_local:
            return Path(self.url, path).exists()
        with _explained(f"{self.url}/{path}"):
            return any(listed for listed in obstore.list(_store(self), path or None, chunk_size=1))

    def size(self, path: str) -> int | None:
        """The size of a file; None if it does not exist."""
        with _explained(f"{self.url}/{path}"), suppress(FileNotFoundError):
            return Path(self.url, path).stat().st_size if self.is_local else obstore.head(_store(self), path)["size"]
        return None

    def read(self, path: str) -> bytes:
        """Raises FileNotFoundError."""
        return b"".join(self.pieces(path, 1 << 20))

    def pieces(self, path: str, size: int) -> Iterator[bytes]:
        """A file in pieces of about this size; raises FileNotFoundError."""
        with _explained(f"{self.url}/{path}"):
            if not self.is_local:
                yield from map(bytes, obstore.get(_store(self), path).stream(min_chunk_size=size))
                return
            with Path(self.url, path).open("rb") as file:
                while piece := file.read(size):
                    yield piece

    def write(self, path: str, data: bytes) -> None:
        with _explained(f"{self.url}/{path}"):
            if not self.is_local:
                obstore.put(_store(self), path, data)
                return
            try:
                Path(self.url, path).parent.mkdir(parents=True, exist_ok=True)
                Path(self.url, path).write_bytes(data)
            except FileNotFoundError as error:  # `_explained` does not handle it, because readers do
                raise PipelineFault(f"{self.url}/{path}: cannot be written: {error.strerror}") from None

    def delete(self, path: str) -> None:
        with _explained(f"{self.url}/{path}"):
            if self.is_local:
                Path(self.url, path).unlink()
            else:
                obstore.delete(_store(self), path)

    def parquet(self, paths: Sequence[str], columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of Parquet files, in the order of the files."""
        tables = []
        for path in paths:
            source = f"{self.url}/{path}" if self.is_local else pa.BufferReader(self.read(path))
            with _explained(f"{self.url}/{path}"), pq.ParquetFile(source) as file:
                tables.append(file.read(columns=columns, use_threads=False))
        return pa.concat_tables(tables)

    def write_parquet(self, prefix: str, rows: pa.Table, partition: Mapping[str, str] | None = None) -> DataFile:
        """Write rows to a new file, whose path begins with this."""
        path, data = f"{prefix}{uuid.uuid4().hex}.parquet", as_parquet(rows)
        self.write(path, data)
        return DataFile(path, len(data), len(rows), partition or {})


@lru_cache(maxsize=64)
def _store(storage: Storage) -> ObjectStore:
    make: Any = from_url  # its types are different for each store
    store: ObjectStore = make(
        storage.url, config=dict(storage.options), client_options={"allow_http": storage._is_without_tls}
    )
    return store


def as_parquet(rows: pa.Table) -> bytes:
    out = pa.BufferOutputStream()
    repeated = [name for name in rows.column_names if name not in ("id", "time")]
    pq.write_table(
        rows, out, row_group_size=_ROW_GROUP, compression="zstd", use_dictionary=repeated, store_schema=False
    )
    return bytes(out.getvalue())


@contextmanager
def _explained(url: str) -> Iterator[None]:
    """Turns an error of a file system or store into a fault of one line; callers handle FileNotFoundError."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (OSError, BaseError) as error:
        said = getattr(error, "strerror", None) or str(error).strip().partition("\n")[0]
        raise PipelineFault(f"{url}: {said}") from None


def spark_settings(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Settings for Spark's S3 client. It reads the access keys from the same variables by itself."""
    settings = {}
    if endpoint := environ.get("AWS_ENDPOINT_URL"):
        settings["spark.hadoop.fs.s3a.endpoint"] = endpoint
        settings["spark.hadoop.fs.s3a.path.style.access"] = "true"
    if region := environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION"):
        settings["spark.hadoop.fs.s3a.endpoint.region"] = region
    return settings
