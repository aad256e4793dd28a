"""`pulsar-ingress-pipeline` that kills itself with -9 just before its Nth commit: python kills.py TABLE N ARGUMENTS…

Only commits of that table are counted; `any` is all of them.
"""

import os
import signal
import sys
from typing import Any

from pulsar_ingress_pipeline.cli import main
from pulsar_ingress_pipeline.lake.table import LakeTable


def arm(name: str, number: int) -> None:
    commit, left = LakeTable.commit, number

    def armed(table: LakeTable, *rest: Any, **more: Any) -> None:
        nonlocal left
        if name in ("any", table.name):
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)
        commit(table, *rest, **more)

    setattr(LakeTable, "commit", armed)  # noqa: B010


if __name__ == "__main__":
    arm(sys.argv[1], int(sys.argv[2]))
    sys.exit(main(sys.argv[3:]))
