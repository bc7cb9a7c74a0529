"""Error codes: each has one meaning, one exception, and a guest's code has one in the host's words."""

from __future__ import annotations

import pytest

from osgym_host.core.reasons import Reason, consequence
from osgym_host.episodes.errors import refused_by_guest
from osgym_host.errors import ServiceError
from osgym_host.guest_client import GuestRefused
from osgym_protocol.codes import MEANINGS, ErrorCode, GuestErrorCode
from osgym_protocol.observation import ErrorInfo
from osgym_sdk._exceptions import HostError, error_from_wire


@pytest.mark.parametrize("code", ErrorCode)
def test_every_code_has_a_status_and_an_exception(code: ErrorCode) -> None:
    """The host answers the table's status; the SDK raises one kind, with the table's class of fault."""
    error = ServiceError(code, "why")
    assert (error.status, error.info()) == (MEANINGS[code].status, ErrorInfo(code, "why"))
    raised = error_from_wire(error.info(), status=error.status)
    assert raised.code == code
    assert raised.error_class == MEANINGS[code].error_class
    assert (type(raised) is HostError) == (code is ErrorCode.INTERNAL)


def test_the_tables_are_total() -> None:
    """Nothing more and nothing less."""
    assert set(MEANINGS) == set(ErrorCode)
    assert {consequence(reason).code for reason in Reason} <= set(ErrorCode)


@pytest.mark.parametrize("code", GuestErrorCode)
def test_a_guests_refusal_is_the_clients_only_when_it_is(code: GuestErrorCode) -> None:
    """What the client said comes back as such; what is between host and guest does not."""
    told = refused_by_guest(GuestRefused(409, code, "why", {"a": 1}))
    theirs = {
        GuestErrorCode.INVALID_ACTION: ErrorCode.INVALID_ACTION,
        GuestErrorCode.BAD_REQUEST: ErrorCode.BAD_REQUEST,
        GuestErrorCode.BAD_SEQUENCE: ErrorCode.BAD_SEQUENCE,
    }
    ours = {ErrorCode.TIMEOUT, ErrorCode.INTERNAL, ErrorCode.UNSUPPORTED}
    assert told.code == theirs[code] if code in theirs else told.code in ours
    assert told.details == {"a": 1, "guest_code": code}


def test_an_unknown_code_of_a_guest_is_not_the_clients() -> None:
    """Whatever word a hostile guest invents: `transaction_failed` has `action` in it."""
    assert refused_by_guest(GuestRefused(400, "transaction_failed", "", {})).code is ErrorCode.INTERNAL
