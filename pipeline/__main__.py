"""`python -m pipeline` is `pulsar-ingress-pipeline`."""

import sys

from pipeline.cli import main

sys.exit(main())
