"""The pipeline's command as the file that spark-submit asks for."""

import sys

from pipeline.cli import main

sys.exit(main())
