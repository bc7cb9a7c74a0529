"""What to say when the first call to a host shows that there is none: the usual case is a wrong port."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import httpx

from osgym_sdk._exceptions import AuthError, HostUnreachable, OSGymError, Timeout
from osgym_sdk.wire import ErrorCode

_HOW = "is the port right? `osgym host serve` starts a host agent, on port 20000 unless it is given --port"
_OWN = frozenset(code.value for code in ErrorCode if code is not ErrorCode.NOT_FOUND)
_REFUSED = f"[Errno {errno.ECONNREFUSED}]"


def explained(error: OSGymError, url: str) -> OSGymError:
    """Return the error of a first call, saying what seems to be at `url` and how a host agent is started.

    What a host agent said itself is returned as it is.
    """
    if isinstance(error, AuthError | Timeout):
        return error
    causes = list(_causes(error))
    if any(isinstance(cause, ConnectionRefusedError) or _REFUSED in str(cause) for cause in causes):
        text = f"nothing listens at {url} (connection refused): {_HOW}"
    elif any(isinstance(cause, httpx.RemoteProtocolError) for cause in causes):
        text = f"what listens at {url} does not speak HTTP, so it is no host agent of OSGym: {_HOW}"
    elif any("WRONG_VERSION_NUMBER" in str(cause) for cause in causes):
        text = f"what listens at {url} does not speak TLS; write http:// if it is a host agent without TLS"
    elif not isinstance(error, HostUnreachable) and error.code not in _OWN:
        said = error.message.split("\n")[0][:100]
        text = f"what answers at {url} is no host agent of OSGym ({said}): {_HOW}"
    else:
        return error
    found = HostUnreachable(text, host=url, details={**error.details, "cause": error.code})
    found.maybe_sent = False
    found.__cause__ = error
    return found


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__
