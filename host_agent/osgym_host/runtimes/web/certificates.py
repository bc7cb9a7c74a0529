"""Certificates of recorded and replayed sites, signed by an authority of one run of a host agent.

The authority's key is in the memory of the host agent and of its proxy, never in a file; only replicas of
that agent trust it. Certificates hold for decades, as a desktop's clock can be set to any year.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import ssl
from collections import OrderedDict

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from osgym_host.runtimes.web.heads import is_address
from osgym_host.runtimes.web.options import Authority
from osgym_host.runtimes.web.proxy_setup import AUTHORITY_NAME

_FROM = datetime.datetime(1990, 1, 1, tzinfo=datetime.UTC)
_TO = datetime.datetime(2049, 12, 31, tzinfo=datetime.UTC)
_MAX_CONTEXTS = 512
"""Number of sites whose certificates are kept, 30 KiB each; the least recently used go first."""


def make_authority() -> Authority:
    """Make an authority that signs certificates of sites only."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(AUTHORITY_NAME)
    usage = x509.KeyUsage(False, False, False, False, False, True, False, False, False)
    certificate = (
        _builder(name, name, key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Authority(certificate.public_bytes(Encoding.PEM).decode(), _pem(key).decode())


class Certificates:
    """TLS contexts of sites, made on demand."""

    def __init__(self, authority: Authority) -> None:
        """Sign with this authority; all sites share one key.

        Raises:
            ValueError: The authority is malformed.
        """
        self._issuer = x509.load_pem_x509_certificate(authority.certificate.encode())
        key = load_pem_private_key(authority.key.encode(), None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError("the authority's key is of another kind")
        self._signer = key
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._contexts: OrderedDict[str, ssl.SSLContext] = OrderedDict()

    def context(self, host: str) -> ssl.SSLContext:
        found = self._contexts.get(host)
        if found is None:
            found = self._contexts[host] = self._make(host)
            if len(self._contexts) > _MAX_CONTEXTS:
                self._contexts.popitem(last=False)
        else:
            self._contexts.move_to_end(host)
        return found

    def _make(self, host: str) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_alpn_protocols(["http/1.1"])
        chain = self._sign(host).public_bytes(Encoding.PEM) + _pem(self._key)
        fd = os.memfd_create("osgym-site", os.MFD_CLOEXEC)  # ssl reads certificates from files only
        try:
            os.write(fd, chain)
            context.load_cert_chain(f"/proc/self/fd/{fd}")
        finally:
            os.close(fd)
        return context

    def _sign(self, host: str) -> x509.Certificate:
        name = x509.IPAddress(ipaddress.IPv4Address(host)) if is_address(host) else x509.DNSName(host)
        usage = x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH])
        issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._signer.public_key())
        return (
            _builder(_name("OSGym site"), self._issuer.subject, self._key.public_key())
            .add_extension(x509.SubjectAlternativeName([name]), critical=True)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(usage, critical=False)
            .add_extension(issuer_key, critical=False)
            .sign(self._signer, hashes.SHA256())
        )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(_FROM)
        .not_valid_after(_TO)
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
