"""Rights of hosts at Google Cloud: their secret, this fleet's objects, metrics."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

import pulumi
import pulumi_gcp as gcp

from osgym_infra.components.common import authority_of, new_secret
from osgym_infra.providers.gcp.scope import Scope


@dataclass(frozen=True, slots=True)
class HostIdentity:
    """Identity and secret of the hosts.

    Attributes:
        secret: Name of the secret's newest version.
        authority: The certificate of the hosts' authority; empty with a secret of the configuration's.
        needs: Resources that have to exist before a host starts.
    """

    email: pulumi.Output[str]
    secret: pulumi.Output[str]
    authority: pulumi.Output[str]
    needs: tuple[pulumi.Resource, ...]


def make_identity(scope: Scope) -> HostIdentity:
    """Make a service account of the fleet, with its rights and its secret."""
    account = gcp.serviceaccount.Account(
        f"{scope.name}-host",
        account_id=f"{scope.name}-host"[:30],
        display_name="OSGym hosts",
        project=scope.project,
        opts=scope.child,
    )
    member = account.email.apply(lambda email: f"serviceAccount:{email}")
    secret, authority, needs = _secret(scope, member)
    needs += [*_objects(scope, member), _metrics(scope, member)]
    return HostIdentity(account.email, secret, authority, tuple(needs))


def _secret(
    scope: Scope, member: pulumi.Input[str]
) -> tuple[pulumi.Output[str], pulumi.Output[str], list[pulumi.Resource]]:
    """Return the secret's newest version, the authority's certificate, and a host's rights to read it."""
    named = scope.config.token_secret
    if named:
        grant = _reader(scope, named.split("/versions/")[0], member)
        return pulumi.Output.from_input(named), pulumi.Output.from_input(""), [grant]
    secret = gcp.secretmanager.Secret(
        f"{scope.name}-token",
        secret_id=f"{scope.name}-token",
        replication=gcp.secretmanager.SecretReplicationArgs(
            auto=gcp.secretmanager.SecretReplicationAutoArgs()
        ),
        labels=scope.labels,
        project=scope.project,
        opts=scope.kept,
    )
    version = gcp.secretmanager.SecretVersion(
        f"{scope.name}-token",
        secret=secret.id,
        secret_data=new_secret(scope.args.server_name),
        # The program makes a new one whenever it runs; the first stays until it is replaced on purpose.
        opts=pulumi.ResourceOptions(parent=secret, ignore_changes=["secretData"]),
    )
    name: pulumi.Output[str] = secret.id.apply(lambda found: f"{found}/versions/latest")
    return name, authority_of(version.secret_data), [_reader(scope, secret.id, member), version]


def _reader(scope: Scope, secret: pulumi.Input[str], member: pulumi.Input[str]) -> pulumi.Resource:
    grant: pulumi.Resource = gcp.secretmanager.SecretIamMember(
        f"{scope.name}-token",
        secret_id=secret,
        role="roles/secretmanager.secretAccessor",
        member=member,
        project=scope.project,
        opts=scope.child,
    )
    return grant


def _metrics(scope: Scope, member: pulumi.Input[str]) -> pulumi.Resource:
    """Allow hosts to publish metrics; there is no smaller role, nor a condition on a metric."""
    grant: pulumi.Resource = gcp.projects.IAMMember(
        f"{scope.name}-metrics",
        project=scope.project,
        role="roles/monitoring.metricWriter",
        member=member,
        opts=scope.child,
    )
    return grant


def _objects(scope: Scope, member: pulumi.Input[str]) -> list[pulumi.Resource]:
    """Allow access to this fleet's objects only; needs uniform bucket-level access."""
    named: dict[str, list[str]] = {}
    for uri in (scope.config.image_uri, scope.config.agent_uri):
        parts = urlsplit(uri)
        if parts.scheme == "gs":
            named.setdefault(parts.netloc, []).append(parts.path.lstrip("/"))
    grants = [
        _grant(scope, part, part, "roles/storage.objectViewer", member, _exactly(part, sorted(set(keys))))
        for part, keys in sorted(named.items())
    ]
    place = scope.args.status_bucket
    if scope.args.made_bucket is not None or scope.config.bucket:
        reads = _below(place, f"{scope.args.folder}/")
        grants.append(_grant(scope, "archives", place, "roles/storage.objectViewer", member, reads))
        # What lets hosts say how far they are, for whoever cannot enter them. To write over an object is to
        # delete it, too (Cloud Storage, "IAM permissions for JSON methods").
        writes = _below(place, scope.args.status_folder)
        grants.append(_grant(scope, "status", place, "roles/storage.objectUser", member, writes))
    return grants


def _exactly(bucket: str, keys: list[str]) -> str:
    return " || ".join(f'resource.name == "projects/_/buckets/{bucket}/objects/{key}"' for key in keys)


def _below(bucket: pulumi.Input[str], folder: str) -> pulumi.Output[str]:
    return pulumi.Output.concat(
        'resource.name.startsWith("projects/_/buckets/', bucket, f'/objects/{folder}")'
    )


def _grant(
    scope: Scope,
    part: str,
    bucket: pulumi.Input[str],
    role: str,
    member: pulumi.Input[str],
    expression: pulumi.Input[str],
) -> pulumi.Resource:
    grant: pulumi.Resource = gcp.storage.BucketIAMMember(
        f"{scope.name}-{part}",
        bucket=bucket,
        role=role,
        member=member,
        condition=gcp.storage.BucketIAMMemberConditionArgs(
            title=f"{scope.name}-{part}"[:100], expression=expression
        ),
        opts=scope.child,
    )
    return grant
