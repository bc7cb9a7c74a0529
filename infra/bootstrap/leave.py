#!/usr/bin/env python3
"""Lets a host of an EC2 Auto Scaling group leave in order: its episodes end first, and then it goes at once.

    leave.py REGION GROUP HOOK TIMEOUT_S COMMAND…

Asks the instance's metadata where the group wants it. Once that is `Terminated`, COMMAND (which drains the
agent and ends when no episode is open) is run, the group is kept waiting meanwhile, and told then to go on.
Without this a host that is empty would be paid for until the hook's time is over, and one whose episodes run
longer would be ended under them.

https://docs.aws.amazon.com/autoscaling/ec2/userguide/retrieving-target-lifecycle-state-through-imds.html
"""

import os
import subprocess
import sys
import time
import urllib.parse

import fetch

LOOK_S = float(os.environ.get("OSGYM_LEAVE_LOOK_S", "5"))
HEARTBEAT_S = float(os.environ.get("OSGYM_LEAVE_HEARTBEAT_S", "300"))
"""How often the group is asked for more time; its hook waits for two hours at most without being asked."""
AFTER_S = 60.0
"""How much longer than the deadline the command may take."""
TRIES, PAUSE_S = 30, 2.0
"""To tell the group that we are done: a minute of trying costs less than what is left of the hook's time."""
ENDPOINT = os.environ.get("OSGYM_AUTOSCALING_ENDPOINT", "")
VERSION = "2011-01-01"
LEAVING = "Terminated"


def say(line):
    print(f"osgym: leave: {line}", flush=True)


class Metadata:
    """Client of the instance's metadata service, by IMDSv2; an expired token is renewed."""

    def __init__(self):
        self._token = ""

    def get(self, path):
        """Return a value of the metadata; empty: there is none.

        Raises:
            FetchFailed: Nobody answers.
        """
        for last in (False, True):
            if not self._token:
                asked = {"X-aws-ec2-metadata-token-ttl-seconds": "21600"}
                self._token = fetch.text_of(
                    fetch.call(f"{fetch.AWS_METADATA}/latest/api/token", asked, "PUT")
                )
            try:
                headers = {"X-aws-ec2-metadata-token": self._token}
                return fetch.text_of(
                    fetch.call(f"{fetch.AWS_METADATA}/latest/meta-data/{path}", headers)
                ).strip()
            except fetch.FetchFailed as error:
                if " answered 404 " in str(error):
                    return ""
                self._token = ""
                if last or " answered 401 " not in str(error):
                    raise
        raise AssertionError("not reached")


class Group:
    """Client of the Auto Scaling group: the two calls of a lifecycle hook."""

    def __init__(self, region, group, hook, instance_id):
        self._region = region
        self._named = {"AutoScalingGroupName": group, "LifecycleHookName": hook, "InstanceId": instance_id}

    def call(self, action, **more):
        """Call the API, signed with the instance's role.

        Raises:
            FetchFailed: It was refused, or nobody answers.
        """
        region, *keys = fetch.aws_identity()
        url = ENDPOINT or f"https://autoscaling.{self._region}.amazonaws.com/"
        form = urllib.parse.urlencode({"Action": action, "Version": VERSION, **self._named, **more}).encode()
        kind = {"content-type": "application/x-www-form-urlencoded; charset=utf-8"}
        headers = fetch.aws_signed("autoscaling", self._region or region, keys, "POST", url, form, kind)
        fetch.text_of(fetch.call(url, headers, "POST", form))

    def wait_longer(self):
        """Ask the group for more time; a refusal is only logged, since a retry is refused too."""
        try:
            self.call("RecordLifecycleActionHeartbeat")
        except fetch.FetchFailed as error:
            say(f"the group did not extend the deadline: {error}")

    def go_on(self):
        """Tell the group that the host may go; return whether the group heard it or waits for nothing."""
        for _ in range(TRIES):
            try:
                self.call("CompleteLifecycleAction", LifecycleActionResult="CONTINUE")
                return True
            except fetch.FetchFailed as error:
                say(f"the group could not be notified: {error}")
                if "(ValidationError)" in str(error):  # no lifecycle action is open
                    return False
            time.sleep(PAUSE_S)
        return False


def drain(command, timeout_s, group):
    """Run the drain command while the group waits; stop it after its deadline."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    end = time.monotonic() + timeout_s + AFTER_S
    while True:
        group.wait_longer()
        try:
            return process.wait(min(HEARTBEAT_S, max(0.1, end - time.monotonic())))
        except subprocess.TimeoutExpired:
            if time.monotonic() >= end:
                process.kill()
                return process.wait()


def watch(region, name, hook, timeout_s, command):
    """Wait until the group ends this host, then drain it and let it go."""
    metadata, failing = Metadata(), False
    while True:
        try:
            if metadata.get("autoscaling/target-lifecycle-state") == LEAVING:
                break
            failing = False
        except (fetch.FetchFailed, OSError) as error:
            if not failing:
                say(f"the metadata service does not answer: {error}")
            failing = True
        time.sleep(LOOK_S)
    group = Group(region, name, hook, metadata.get("instance-id"))
    say(f"the group removes this host; its episodes have {timeout_s:g} s")
    code = drain(command, timeout_s, group)
    say(f"drained (exit code {code})")
    if group.go_on():
        say("the group was notified that it can remove the host")


def main(arguments):
    if len(arguments) < 5:
        print(__doc__, file=sys.stderr)
        return 2
    region, name, hook, timeout_s, *command = arguments
    watch(region, name, hook, float(timeout_s), command)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
