"""Certificate authority of a fleet, and its hosts' certificates. The clock is a parameter; no I/O."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CA_LIFE = timedelta(days=3650)
HOST_LIFE = timedelta(days=730)
RENEW_BEFORE = timedelta(days=60)
"""A certificate that ends sooner is renewed by the next `pulumi up`."""

_BACKDATE = timedelta(hours=1)
"""Clocks of hosts are not all right."""


@dataclass(frozen=True, slots=True)
class Credential:
    """Certificate and its private key, both PEM."""

    certificate: str
    key: str = field(repr=False)


def make_ca(name: str, now: datetime) -> Credential:
    """Make an authority that signs certificates of hosts, and no further authorities."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(f"OSGym {name}"[:64])
    usage = x509.KeyUsage(
        digital_signature=False, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, key_cert_sign=True, crl_sign=True,
        encipher_only=False, decipher_only=False,
    )  # fmt: skip
    made = (
        _builder(subject, subject, key.public_key(), now, CA_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Credential(_pem(made), _key_pem(key))


def issue(ca: Credential, addresses: Iterable[str], now: datetime, life: timedelta = HOST_LIFE) -> Credential:
    """Issue a certificate for a host, valid for its addresses (names or IP addresses) and loopback."""
    authority = x509.load_pem_x509_certificate(ca.certificate.encode())
    ca_key = serialization.load_pem_private_key(ca.key.encode(), None)
    assert isinstance(ca_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    names = sorted(_all(addresses))
    made = (
        _builder(_name(names[0][:64]), authority.subject, key.public_key(), now, life)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([_general(name) for name in names]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False
        )
        .sign(ca_key, hashes.SHA256())
    )
    return Credential(_pem(made), _key_pem(key))


def is_still_valid(certificate: str, ca_certificate: str, addresses: Iterable[str], now: datetime) -> bool:
    """Return whether a host's certificate is of this authority, for these addresses, and not expiring."""
    try:
        found = x509.load_pem_x509_certificate(certificate.encode())
        authority = x509.load_pem_x509_certificate(ca_certificate.encode())
        found.verify_directly_issued_by(authority)
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return False
    shown = {str(name.value) for name in names}
    return shown >= _all(addresses) and found.not_valid_after_utc - now > RENEW_BEFORE


def expires(certificate: str) -> datetime | None:
    """Return when a certificate expires; None when the text is not a certificate."""
    try:
        return x509.load_pem_x509_certificate(certificate.encode()).not_valid_after_utc
    except ValueError:
        return None


def _all(addresses: Iterable[str]) -> set[str]:
    """Return the addresses, and those by which a host checks its own health."""
    return {*addresses, "localhost", "127.0.0.1"}


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, life: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATE)
        .not_valid_after(now + life)
    )


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
