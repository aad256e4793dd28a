"""`pulsar-ingress-pipeline` that kills itself with -9 at a moment: python kills.py METHODS PATTERN CALL ARGUMENTS…

The moment is just before the CALLth call of one of these methods of the storage (`write,move`) whose path matches.
"""

import os
import re
import signal
import sys
from collections.abc import Callable
from typing import Any

from pulsar_ingress_pipeline.cli import main
from pulsar_ingress_pipeline.storage import Storage


def arm(methods: list[str], pattern: str, number: int) -> None:
    left = number

    def armed(whole: Callable[..., Any]) -> Callable[..., Any]:
        def called(storage: Storage, path: str = "", *rest: Any) -> Any:
            nonlocal left
            if re.search(pattern, path):
                left -= 1
                if not left:
                    os.kill(os.getpid(), signal.SIGKILL)
            return whole(storage, path, *rest)

        return called

    for method in methods:
        setattr(Storage, method, armed(getattr(Storage, method)))


if __name__ == "__main__":
    arm(sys.argv[1].split(","), sys.argv[2], int(sys.argv[3]))
    sys.exit(main(sys.argv[4:]))
