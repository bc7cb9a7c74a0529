"""Root of the host's exceptions, and the exception that its API answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from osgym_protocol.codes import MEANINGS, ErrorCode
from osgym_protocol.observation import ErrorInfo


class OsgymHostError(Exception):
    """Base of all errors of this distribution."""


class ServiceError(OsgymHostError):
    """Error that the API answers: a stable code, a message, details.

    Attributes:
        status: HTTP status: the table's, where the answer has no more exact one.
        details: Further facts for programs.
    """

    def __init__(
        self,
        code: ErrorCode,
        message: str,
        details: Mapping[str, Any] | None = None,
        *,
        status: int | None = None,
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.status = MEANINGS[code].status if status is None else status
        self.message = message
        self.details = dict(details or {})

    def info(self) -> ErrorInfo:
        return ErrorInfo(self.code, self.message, self.details)
