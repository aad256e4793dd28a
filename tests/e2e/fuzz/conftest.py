"""The tests of this folder use the programs of the Pulsar cluster's: Jetty, and how a JVM is started."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.with_name("pulsar_cluster")))
