"""Errors of connections to brokers, for both protocols."""


class UpstreamError(Exception):
    """A broker gave no answer, or an incomplete one.

    Metrics use `code`, and clients get `text`. The message is for the log: it may have internal names.
    """

    code = "broker-closed"
    text = "the broker closed the connection without an answer"


class Unreachable(UpstreamError):
    """No connection was made, so nothing was sent."""

    code = "broker-unreachable"
    text = "no connection to a broker could be made"


class ClosedEarly(UpstreamError):
    """The connection was closed before the first byte of an answer."""


class TimedOut(UpstreamError):
    code = "broker-timeout"
    text = "the broker gave no answer in time"


class BadAnswer(UpstreamError):
    """The answer is invalid or too large."""

    code = "bad-answer"
    text = "the broker's answer is not one that may be passed on"


class BodyBroken(UpstreamError):
    """The client's request body is invalid or incomplete."""

    code = "bad-body"


class Truncated(UpstreamError):
    """The connection was closed inside an answer."""

    code = "broker-truncated"
    text = "the broker closed the connection inside its answer"


class TooSlow(UpstreamError):
    """The client does not read its answer; logged, and no error of a broker."""
