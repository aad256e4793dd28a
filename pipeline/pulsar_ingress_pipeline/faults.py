"""Errors for the user. They are printed without a traceback."""


class PipelineFault(Exception):
    """A command cannot be carried out; the text says why and what to do."""


class Busy(PipelineFault):
    """Another command has changed the tables."""
