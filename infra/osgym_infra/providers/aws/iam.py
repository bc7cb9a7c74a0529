"""Rights of hosts at AWS: their secret, this fleet's objects, metrics, their own lifecycle."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pulumi
import pulumi_aws as aws

from osgym_infra.components.common import authority_of, new_secret
from osgym_infra.config.readers import bad_key
from osgym_infra.fleet.blueprint import slug
from osgym_infra.providers.aws.scope import Scope, partition

METRICS_NAMESPACE = "OSGym"
PRESSURE_METRIC = "lease_pressure_percent"
FLEET_DIMENSION = "fleet"
ASSUMED_BY_EC2 = {
    "Version": "2012-10-17",
    "Statement": [
        {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"Service": "ec2.amazonaws.com"}}
    ],
}
SECRET_ARN = re.compile(r"arn:aws[a-z-]*:secretsmanager:[a-z0-9-]+:\d{12}:secret:\S+")
SESSIONS = (
    "ssm:UpdateInstanceInformation",
    "ssmmessages:CreateControlChannel",
    "ssmmessages:CreateDataChannel",
    "ssmmessages:OpenControlChannel",
    "ssmmessages:OpenDataChannel",
)
"""The least that Session Manager needs (Systems Manager user guide, "Add Session Manager permissions to an
existing IAM role"). The managed policy AmazonSSMManagedInstanceCore would also let hosts read every
parameter of the account's Parameter Store."""


@dataclass(frozen=True, slots=True)
class Secret:
    """Secret of the fleet.

    Attributes:
        authority: The certificate of the hosts' authority; empty with a secret of the configuration's.
        version: Of what is in it: another one makes another template, so that hosts are replaced.
        needs: Resources that have to exist before a host reads it.
    """

    arn: pulumi.Output[str]
    authority: pulumi.Output[str]
    version: pulumi.Output[str]
    needs: list[pulumi.Resource]


def make_secret(scope: Scope) -> Secret:
    """Make a secret with token and certificate, unless the configuration names one."""
    if scope.config.token_secret:
        if not SECRET_ARN.fullmatch(scope.config.token_secret):
            raise bad_key(
                "token_secret",
                "must be an ARN, by which the hosts' role gets access to the secret",
                f"arn:{partition(scope.config.region)}:secretsmanager:{scope.config.region}:123456789012:"
                "secret:NAME-AbCdEf (aws secretsmanager describe-secret)",
            )
        nothing = pulumi.Output.from_input("")
        return Secret(pulumi.Output.from_input(scope.config.token_secret), nothing, nothing, [])
    secret = aws.secretsmanager.Secret(
        f"{scope.name}-token",
        description="Token and certificate of the OSGym host agents",
        tags=scope.tags("token"),
        opts=scope.kept,
    )
    version = aws.secretsmanager.SecretVersion(
        f"{scope.name}-token",
        secret_id=secret.id,
        secret_string=new_secret(scope.args.server_name),
        # The program makes a new one whenever it runs; the first stays until it is replaced on purpose.
        opts=pulumi.ResourceOptions(parent=secret, ignore_changes=["secretString"]),
    )
    number = version.version_id.apply(lambda found: found or "")
    return Secret(secret.arn, authority_of(version.secret_string), number, [version])


def make_profile(scope: Scope, secret: pulumi.Input[str]) -> tuple[pulumi.Output[str], list[pulumi.Resource]]:
    """Make the instance profile; return its ARN, and what must exist before a host uses it."""
    role = aws.iam.Role(
        f"{scope.name}-host",
        assume_role_policy=pulumi.Output.json_dumps(ASSUMED_BY_EC2),
        tags=scope.tags("host"),
        opts=scope.child,
    )
    policy = aws.iam.RolePolicy(
        f"{scope.name}-host",
        role=role.id,
        policy=pulumi.Output.json_dumps({"Version": "2012-10-17", "Statement": _statements(scope, secret)}),
        opts=pulumi.ResourceOptions(parent=role),
    )
    profile = aws.iam.InstanceProfile(
        f"{scope.name}-host", role=role.name, tags=scope.tags("host"), opts=scope.child
    )
    arn: pulumi.Output[str] = profile.arn
    return arn, [policy]


def _statements(scope: Scope, secret: pulumi.Input[str]) -> list[dict[str, Any]]:
    groups = [
        scope.arn("autoscaling", f"autoScalingGroup:*:autoScalingGroupName/{scope.group_name(group)}")
        for group in scope.args.blueprint.groups
    ]
    return [
        {"Effect": "Allow", "Action": "secretsmanager:GetSecretValue", "Resource": secret},
        *_objects(scope),
        {
            "Effect": "Allow",
            "Action": ["autoscaling:CompleteLifecycleAction", "autoscaling:RecordLifecycleActionHeartbeat"],
            "Resource": groups,
        },
        {
            # This action takes no resource; the namespace is what can be bounded.
            "Effect": "Allow",
            "Action": "cloudwatch:PutMetricData",
            "Resource": "*",
            "Condition": {"StringEquals": {"cloudwatch:namespace": METRICS_NAMESPACE}},
        },
        {"Effect": "Allow", "Action": list(SESSIONS), "Resource": "*"},
    ]


def _objects(scope: Scope) -> list[dict[str, Any]]:
    """Return the ARNs of this fleet's objects, which may lie in a shared bucket."""
    named: Sequence[str] = [
        f"{uri.netloc}/{uri.path.lstrip('/')}"
        for uri in map(urlsplit, (scope.config.image_uri, scope.config.agent_uri))
        if uri.scheme == "s3"
    ]
    arn = f"arn:{partition(scope.config.region)}:s3:::"
    objects: list[pulumi.Input[str]] = [f"{arn}{one}" for one in sorted(set(named))]
    place = scope.args.made_bucket or scope.config.bucket
    folder = f"osgym/{slug(scope.args.stack)}/"
    found: list[dict[str, Any]] = []
    if place:
        objects.append(pulumi.Output.concat(arn, place, "/", folder, "*"))
        status = pulumi.Output.concat(arn, place, "/", folder, "status/*")
        found.append({"Effect": "Allow", "Action": "s3:PutObject", "Resource": status})
    if objects:
        found.insert(0, {"Effect": "Allow", "Action": "s3:GetObject", "Resource": objects})
    return found
