"""What a person must act on: printed as it is, without a traceback."""


class PipelineFault(Exception):
    """A command cannot do what it was asked for; its text says why and what to do."""


class Busy(PipelineFault):
    """Somebody else works on these tables."""
