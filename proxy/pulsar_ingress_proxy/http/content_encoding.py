"""Content codings of lookup answers, undone within limits: what cannot be read cannot be verified."""

import zlib

from pulsar_ingress_proxy.http.upstream import BadAnswer

_WINDOWS = {b"gzip": 31, b"x-gzip": 31, b"deflate": 15}


def decode(body: bytes, codings: list[bytes], limit: int) -> bytes:
    """The plain body; raises BadAnswer where its coding is unknown or broken, or it has more than the limit."""
    if len(body) > limit:
        raise BadAnswer(f"a lookup's answer has more than {limit} bytes")
    if not codings:
        return body
    name = b", ".join(codings).strip().lower()
    if name in (b"", b"identity"):
        return body
    if name not in _WINDOWS:
        raise BadAnswer(f"a lookup's answer has the coding '{name.decode('latin-1')}', which was not asked for")
    decoder = zlib.decompressobj(wbits=_WINDOWS[name])
    try:
        plain = decoder.decompress(body, limit)
    except zlib.error as error:
        raise BadAnswer(f"a lookup's answer is not what its coding says: {error}") from None
    if not decoder.eof:
        raise BadAnswer("a lookup's answer is cut short, or larger than it may be")
    return plain
