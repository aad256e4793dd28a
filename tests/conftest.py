"""Settings of all tests."""

from hypothesis import settings

# A busy machine is not a failure: tests have no deadlines but pytest's timeout.
settings.register_profile("without deadlines", parent=settings(), deadline=None)
settings.load_profile("without deadlines")
