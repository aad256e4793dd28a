"""Tables as plain Parquet files, for those who read nothing else."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq  # type: ignore[import-untyped]

from pulsar_ingress_pipeline.faults import PipelineFault
from pulsar_ingress_pipeline.lake.layout import SHARES, check, names
from pulsar_ingress_pipeline.lake.storage import Storage
from pulsar_ingress_pipeline.lake.table import opened


def export(tables: Storage, out: str) -> Iterator[str]:
    """Write every table to a folder of its own; gives a line for each as soon as it is written."""
    check(tables)
    if "://" in out:
        raise PipelineFault(f"--out {out}: should be a folder of this machine")
    target = Path(out)
    try:
        if target.exists() and any(target.iterdir()):
            raise PipelineFault(f"--out {out}: is not empty; export to a new folder")
        for name in names(tables):
            if not name.startswith(SHARES):
                yield _export(tables, name, target / name)
    except OSError as error:
        raise PipelineFault(f"--out {out}: cannot be written: {error.strerror or error}") from None


def _export(tables: Storage, name: str, folder: Path) -> str:
    delta = opened(tables.below(name), name)
    assert delta is not None
    folder.mkdir(parents=True)
    rows = 0
    dataset = delta.to_pyarrow_dataset()
    with pq.ParquetWriter(folder / f"{name}.parquet", dataset.schema, compression="zstd") as writer:
        for batch in dataset.to_batches():
            writer.write_batch(batch)
            rows += len(batch)
    return f"{name}: {rows:,} rows of version {delta.version()}"
