"""What can go wrong with a broker, for both protocols."""


class UpstreamError(Exception):
    """Why a broker gave no answer, or only part of one.

    Metrics count it by `code`, clients are told `text`, and what it is raised with, names of the inside
    among it, is for the log.
    """

    code = "broker-closed"
    text = "the broker closed the connection without an answer"


class Unreachable(UpstreamError):
    """No connection could be made, so nothing was sent."""

    code = "broker-unreachable"
    text = "no connection to a broker could be made"


class ClosedEarly(UpstreamError):
    """The connection ended before the first byte of an answer."""


class TimedOut(UpstreamError):
    code = "broker-timeout"
    text = "the broker gave no answer in time"


class BadAnswer(UpstreamError):
    """What came is not HTTP/1.1 as RFC 9112 has it, or is larger than it may be."""

    code = "bad-answer"
    text = "the broker's answer is not one that may be passed on"


class BodyBroken(UpstreamError):
    """The client's own body ended or went wrong on its way to the broker."""

    code = "bad-body"


class Truncated(UpstreamError):
    """The connection ended inside an answer."""

    code = "broker-truncated"
    text = "the broker closed the connection inside its answer"


class TooSlow(UpstreamError):
    """The client does not read its answer."""

    code = "client-stalled"
