"""What the fuzzer does not send."""

import schemathesis


@schemathesis.hook
def filter_headers(_context, headers):
    """Control characters in headers are not HTTP: the server answers them before any route, without a body."""
    return all(str(value).isprintable() for value in (headers or {}).values())
