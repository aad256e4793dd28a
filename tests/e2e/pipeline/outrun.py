"""`pulsar-ingress-pipeline` that is outrun: it sees no lock in the bucket, and while it makes one another does."""

import json
import sys
from dataclasses import asdict
from typing import Any
from unittest import mock

from pulsar_ingress_pipeline import hadoop_store, lock
from pulsar_ingress_pipeline.cli import main
from pulsar_ingress_pipeline.object_store import ObjectStore

RIVAL = lock.Owner("rival", "elsewhere", 1, None, "stream", "2026-11-16T09:00:00Z")


def outrun(stream: Any, text: str) -> None:
    fill_patch.stop()
    bucket = ObjectStore(sys.argv[sys.argv.index("--tables") + 1])
    assert bucket.create(lock.NAME, json.dumps(asdict(RIVAL)))
    hadoop_store.fill(stream, text)


fill_patch = mock.patch.object(hadoop_store, "fill", outrun)

if __name__ == "__main__":
    fill_patch.start()
    sys.exit(main(sys.argv[1:]))
