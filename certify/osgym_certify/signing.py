"""Signatures of certificates by an Ed25519 key, so that a set of tasks can be passed on with its record."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

from osgym_certify.certificate import Certificate


class KeyFileError(ValueError):
    """The file has no key of this kind; the message says how to make one."""


_HOW = "make one with `openssl genpkey -algorithm ed25519 -out key.pem`"


def private_key(path: Path) -> Ed25519PrivateKey:
    """Read the PEM file of a private key without a password.

    Raises:
        KeyFileError: It is no such file.
    """
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError) as error:
        raise KeyFileError(f"{path}: not a private key without a password; {_HOW}") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyFileError(f"{path}: not an Ed25519 key; {_HOW}")
    return key


def public_key(path: Path) -> Ed25519PublicKey:
    """Read the PEM file of a public key.

    Raises:
        KeyFileError: It is no such file.
    """
    try:
        key = load_pem_public_key(path.read_bytes())
    except (OSError, ValueError, TypeError) as error:
        raise KeyFileError(
            f"{path}: not a public key; `openssl pkey -in key.pem -pubout` prints it"
        ) from error
    if not isinstance(key, Ed25519PublicKey):
        raise KeyFileError(f"{path}: not an Ed25519 key; {_HOW}")
    return key


def signed(certificate: Certificate, key: Ed25519PrivateKey) -> Certificate:
    """Return the certificate with its signature."""
    return replace(certificate, signature=base64.b64encode(key.sign(certificate.signed_text())).decode())


def is_signed(certificate: Certificate, key: Ed25519PublicKey) -> bool:
    """Whether the certificate has a signature by this key, and was not changed since."""
    try:
        key.verify(base64.b64decode(certificate.signature, validate=True), certificate.signed_text())
    except (InvalidSignature, ValueError):
        return False
    return True
