"""The pipeline's command as the file that spark-submit asks for."""

import sys

from pulsar_ingress_pipeline.cli import main

sys.exit(main())
