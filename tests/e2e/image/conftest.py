"""The pipeline's image is built once for all who try it."""

from collections.abc import Iterator

import pytest

from deploy.image import pipeline
from deploy.image.engines import Image, engine


@pytest.fixture(scope="session")
def pipeline_image() -> Iterator[Image]:
    chosen = engine()
    pipeline.build(chosen)
    with chosen.opened(pipeline.TAG) as opened:
        yield opened
