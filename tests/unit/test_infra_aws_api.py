"""Our requests against the models of AWS's APIs, and against moto, which makes groups of them."""

from __future__ import annotations

from typing import Any

import boto3
import moto
import pytest
from tests.support import aws_api
from tests.support.fleet_configs import AWS
from tests.unit.test_infra_components import Recorder, deploy

# The generated SDKs warn about names of their own when they are imported.
pytestmark = pytest.mark.filterwarnings("ignore:.*has been deprecated:DeprecationWarning")

FLEET = {
    **AWS, "host_type": "r8i.24xlarge", "market": "spot", "roll": "true", "min_hosts": "1", "max_hosts": "5",
    "ttl_hours": "2", "replicas": "512", "max_replicas_per_host": "256",
}  # fmt: skip


@pytest.fixture(scope="module")
def recorder() -> Recorder:
    """Everything that a fleet asks for."""
    return deploy(FLEET)[0]


def test_templates_are_what_ec2_takes(recorder: Recorder) -> None:
    """Every property is one of EC2's, of the right kind, in its enum and bounds."""
    data = aws_api.template_data(recorder.one("LaunchTemplate"))
    assert data["NetworkInterfaces"][0]["Groups"]
    assert data["CpuOptions"] == {"NestedVirtualization": "enabled"}
    with pytest.raises(AssertionError, match="is none of"):
        aws_api.template_data({"cpuOptions": {"nestedVirtualization": "on"}})
    with pytest.raises(AssertionError, match="has no"):
        aws_api.template_data({"networkInterface": []})
    with pytest.raises(AssertionError, match="valid types"):
        aws_api.check(
            aws_api.SESSION.get_service_model("ec2").shape_for("RequestLaunchTemplateData"), {"UserData": 5}
        )


def test_groups_hooks_policies_and_ends_are_what_auto_scaling_takes(recorder: Recorder) -> None:
    """Each as the request that the provider sends."""
    group = aws_api.request("autoscaling", "CreateAutoScalingGroup", recorder.one("Group"))
    assert group["VPCZoneIdentifier"].count(",") == 2
    name = {"autoScalingGroupName": group["AutoScalingGroupName"]}
    refresh = recorder.one("Group")["instanceRefresh"]
    started = aws_api.request("autoscaling", "StartInstanceRefresh", {**name, **refresh})
    assert started["Preferences"]["SkipMatching"] is True
    hook = aws_api.request("autoscaling", "PutLifecycleHook", recorder.one("LifecycleHook"))
    assert hook["HeartbeatTimeout"] == 1920
    policy = aws_api.request("autoscaling", "PutScalingPolicy", recorder.one("Policy"))
    assert policy["TargetTrackingConfiguration"]["CustomizedMetricSpecification"]["Namespace"] == "OSGym"
    end = aws_api.request("autoscaling", "PutScheduledUpdateGroupAction", recorder.one("Schedule"))
    assert end["MaxSize"] == 0


def test_a_lost_host_is_back_by_itself(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """moto takes the very requests, starts the hosts, and its group replaces one that is gone."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with moto.mock_aws():
        ec2 = boto3.client("ec2", region_name="us-east-1")
        scaling = boto3.client("autoscaling", region_name="us-east-1")
        subnet = ec2.describe_subnets()["Subnets"][0]
        groups = [ec2.describe_security_groups()["SecurityGroups"][0]["GroupId"]]
        data = aws_api.template_data(recorder.one("LaunchTemplate"))
        data["ImageId"] = ec2.describe_images()["Images"][0]["ImageId"]
        data["NetworkInterfaces"][0]["Groups"] = groups
        del data["IamInstanceProfile"]
        made = ec2.create_launch_template(LaunchTemplateName="hosts", LaunchTemplateData=data)
        group = aws_api.request("autoscaling", "CreateAutoScalingGroup", recorder.one("Group"))
        group["VPCZoneIdentifier"] = subnet["SubnetId"]
        policy = group["MixedInstancesPolicy"]["LaunchTemplate"]
        for one in (policy, *policy["Overrides"]):
            one["LaunchTemplateSpecification"] = {
                "LaunchTemplateId": made["LaunchTemplate"]["LaunchTemplateId"],
                "Version": "1",
            }
        scaling.create_auto_scaling_group(**group)
        hook = aws_api.request("autoscaling", "PutLifecycleHook", recorder.one("LifecycleHook"))
        scaling.put_lifecycle_hook(**hook)
        policy = aws_api.request("autoscaling", "PutScalingPolicy", recorder.one("Policy"))
        scaling.put_scaling_policy(**policy)
        before = hosts(scaling)
        assert len(before) == group["DesiredCapacity"] == 2
        scaling.terminate_instance_in_auto_scaling_group(
            InstanceId=before[0], ShouldDecrementDesiredCapacity=False
        )
        after = hosts(scaling)
        assert len(after) == 2
        assert before[0] not in after
        assert before[1] in after


def hosts(scaling: Any) -> list[str]:
    """The instances of the only group."""
    (group,) = scaling.describe_auto_scaling_groups()["AutoScalingGroups"]
    return [one["InstanceId"] for one in group["Instances"]]
