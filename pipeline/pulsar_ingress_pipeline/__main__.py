"""`python -m pulsar_ingress_pipeline` is `pulsar-ingress-pipeline`."""

import sys

from pulsar_ingress_pipeline.cli import main

sys.exit(main())
