"""What ssh's failures and keys are called, for people. Without Pulumi, so that every command may use it."""

from __future__ import annotations

import base64
import hashlib

import paramiko

_SILENT = ("No existing session", "Error reading SSH protocol banner")
"""What paramiko 5.1 says where no banner of an ssh server came in time."""


def shown_key(key: paramiko.PKey) -> str:
    """A host key as `ssh-keygen -l` shows it."""
    digest = base64.b64encode(hashlib.sha256(key.asbytes()).digest()).decode().rstrip("=")
    return f"{key.get_name()} SHA256:{digest}"


def reason(error: Exception) -> str:
    """Say in a few words what a connection failed from. Parts of it may come from the other side."""
    if isinstance(error, TimeoutError) or any(words in str(error) for words in _SILENT):
        return "no answer in time"
    if isinstance(error, paramiko.ssh_exception.NoValidConnectionsError):
        return "; ".join(sorted({str(one.strerror or one) for one in error.errors.values()}))
    return str(error) or type(error).__name__
