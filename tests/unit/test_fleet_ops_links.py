"""How lines of hosts are shown, and hosts of clouds entered: by stand-ins for `aws` and `gcloud` that refuse
what the real ones refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from tests.support.fleet_files import write_fleet

from osgym_infra.cli.fleet import fleet as command
from osgym_infra.cli.fleet_ops.outcome import HostFailure, HostOutcome, exit_code
from osgym_infra.cli.fleet_ops.run import journal_argv
from osgym_infra.cli.fleet_ops.text import MOST_LINE_CHARS, Lines, escaped
from osgym_infra.errors import BadInput
from osgym_infra.fleet.managed import read_fleet
from osgym_infra.providers.aws.access import SsmAccess
from osgym_infra.providers.gcp.access import IapAccess

INSTANCE = "i-0123456789abcdef0"
GCLOUD = """#!/bin/sh
# gcloud compute ssh (Google Cloud SDK reference): one positional, the instance; `--command` is run there.
[ "$1 $2" = "compute ssh" ] || exit 2
shift 2
for word; do
  case $word in
    --zone=us-central1-a|--project=my-project|--tunnel-through-iap|--quiet) ;;
    --strict-host-key-checking=yes|--strict-host-key-checking=ask) strict=1 ;;
    --command=*) command=${word#--command=} ;;
    --*) echo "ERROR: (gcloud.compute.ssh) unrecognized arguments: $word" >&2; exit 2 ;;
    *) instance=$word ;;
  esac
done
[ "$instance" = prod-0 ] || { echo "The resource was not found" >&2; exit 1; }
[ "$strict" ] && [ "$command" ] || exit 255
exec sh -c "$command"
"""
AWS = """#!/usr/bin/env python3
# aws ssm start-session (AWS CLI reference): parameters are lists of texts; no exit code comes back.
import argparse, json, os, subprocess, sys
parser = argparse.ArgumentParser(allow_abbrev=False)
for word in ("service", "operation"):
    parser.add_argument(word)
for name in ("--target", "--region", "--document-name", "--parameters"):
    parser.add_argument(name, required=name in ("--target", "--region"))
given = parser.parse_args()
assert (given.service, given.operation) == ("ssm", "start-session")
if given.target != "i-0123456789abcdef0":
    sys.exit("An error occurred (TargetNotConnected) when calling the StartSession operation")
assert given.document_name == "AWS-StartNonInteractiveCommand"
parameters = json.loads(given.parameters)
assert list(parameters) == ["command"] and all(isinstance(one, str) for one in parameters["command"])
print("\\nStarting session with SessionId: me-0123456789abcdef0", flush=True)
subprocess.run(["sh", "-c", *parameters["command"]])
print("\\n\\nExiting session with sessionId: me-0123456789abcdef0.\\n")
"""


@pytest.fixture
def clouds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose stand-ins come first on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in (("gcloud", GCLOUD), ("aws", AWS)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def at(path: Path, provider: str, name: str = "") -> Path:
    """fleet.json of a cloud, as the stack puts it out."""
    aws = provider == "aws"
    host = {"id": name or (INSTANCE if aws else "prod-0"), "url": "https://203.0.113.5:20000",
            "zone": "us-east-1a" if aws else "us-central1-a"}  # fmt: skip
    secret = "aws:arn:aws:secretsmanager:x" if aws else "gcp:projects/my-project/secrets/osgym-prod-token"
    region = "us-east-1" if aws else "us-central1"
    return write_fleet(
        path / f"{provider}.json", [host], provider=provider, region=region, token_secret=secret
    )


def run(path: Path, name: str, *arguments: str) -> Result:
    return CliRunner().invoke(command, [name, "--fleet", str(path), *arguments])


@pytest.mark.parametrize("provider", ["aws", "gcp"])
def test_hosts_of_clouds_are_entered_by_their_own_command(
    tmp_path: Path, clouds: Path, provider: str
) -> None:
    """What a command prints and its exit code come back; the session's own lines do not."""
    path = at(tmp_path, provider)
    name = INSTANCE if provider == "aws" else "prod-0"
    done = run(path, "run", "--", "printf", r"%s\n", "it's here", "$HOME")
    assert done.exit_code == 0, done.output
    assert [line for line in done.stdout.splitlines() if line != f"{name} | "] == [
        f"{name} | it's here", f"{name} | $HOME",
    ]  # fmt: skip
    failed = json.loads(run(path, "run", "--json", "--", "exit 7").stdout)["hosts"][0]
    assert (failed["exit_code"], failed["failure"]["step"]) == (7, "run")
    late = json.loads(run(path, "run", "--json", "--deadline-s", "1", "--", "exec sleep 100").stdout)[
        "hosts"
    ][0]
    assert "did not end within 1 s" in late["failure"]["problem"]
    shown = run(path, "ssh", "--print", name).stdout
    assert shown.startswith(
        f"aws ssm start-session --target {INSTANCE} --region us-east-1" if provider == "aws"
        else "gcloud compute ssh prod-0 --zone=us-central1-a --project=my-project --tunnel-through-iap"
    )  # fmt: skip


def test_a_cloud_that_refuses_is_a_failure(tmp_path: Path, clouds: Path) -> None:
    """With the command to try by hand; without the cloud's command too."""
    path = at(tmp_path, "aws", "i-00000000000000000")
    gone = json.loads(run(path, "run", "--json", "--", "true").stdout)["hosts"][0]["failure"]
    assert (gone["step"], "aws ssm start-session --target i-000" in gone["remedy"]) == ("connect", True)
    (clouds / "aws").unlink()
    away = json.loads(run(path, "run", "--json", "--", "true").stdout)["hosts"][0]["failure"]
    assert "no `aws` on PATH" in away["problem"]


def test_how_a_host_is_entered_follows_from_fleet_json(tmp_path: Path) -> None:
    """A name that could be an option or another command is no host of a cloud."""

    def access(provider: str, name: str, **row: Any) -> object:
        fleet = {"schema_version": 1, "provider": provider, "region": "us-east-1",
                 "token_secret": "gcp:projects/my-project/secrets/x"}  # fmt: skip
        rows = [{"id": name, "url": "https://x:1", "zone": "us-central1-a", **row}]
        path = tmp_path / "rows.json"
        path.write_text(json.dumps({**fleet, "hosts": rows}))
        return read_fleet(path).hosts[0].access

    assert access("aws", INSTANCE) == SsmAccess(INSTANCE, "us-east-1")
    assert access("gcp", "prod-0") == IapAccess("prod-0", "us-central1-a", "my-project")
    for provider, name in (
        ("aws", "--profile=x"),
        ("aws", "prod-0"),
        ("gcp", "--x"),
        ("gcp", "a;b"),
        ("ssh", "a"),
    ):
        assert access(provider, name) is None
    assert access("gcp", "prod-0", zone="--x") is None


@given(st.text(max_size=300))
def test_nothing_that_is_shown_steers_a_terminal(text: str) -> None:
    """Whatever a host says; what can be printed stays as it is."""
    shown = escaped(text, 100)
    assert shown.isprintable()
    assert len(shown) <= 401
    if text.isprintable() and len(text) <= 100:
        assert shown == text


@given(st.lists(st.binary(max_size=50), max_size=30))
def test_lines_are_the_same_however_they_arrive(pieces: list[bytes]) -> None:
    """Split anywhere, also inside a character."""
    whole: list[str] = []
    parts: list[str] = []
    for found, chunks in ((whole, [b"".join(pieces)]), (parts, pieces)):
        lines = Lines(found.append)
        for chunk in chunks:
            lines.feed(chunk)
        lines.end()
    assert whole == parts


def test_a_line_without_end_is_cut_and_the_next_one_shown() -> None:
    """Memory is bounded by the longest line that is shown."""
    found: list[str] = []
    lines = Lines(found.append)
    for _ in range(100):
        lines.feed(b"x" * 1000)
    lines.feed(b"\nnext\n")
    assert [len(line) <= MOST_LINE_CHARS + 1 for line in found] == [True, True]
    assert found[1] == "next"


@pytest.mark.parametrize(("unit", "since"), [("-x", None), ("a b", None), ("osgym", "--vacuum-size=1")])
def test_a_journal_is_asked_for_what_it_says(unit: str, since: str | None) -> None:
    """Values that could be other options are refused."""
    with pytest.raises(BadInput):
        journal_argv(unit, 10, since, follow=False)
    assert journal_argv("osgym", 10, "-5min", follow=True)[-2:] == ("--since=-5min", "--follow")


def test_one_failure_is_enough() -> None:
    """For the exit code."""
    well, failed = HostOutcome("a"), HostOutcome("b", HostFailure("run", "x"))
    assert [exit_code(one) for one in ([], [well], [well, failed])] == [0, 0, 1]


@pytest.mark.parametrize("provider", ["aws", "gcp"])
def test_a_host_that_does_not_answer_yet_says_where_its_boot_stands(
    tmp_path: Path, clouds: Path, monkeypatch: pytest.MonkeyPatch, provider: str
) -> None:
    """By its console; what stands there is shown, not obeyed."""
    monkeypatch.setenv("OSGYM_TOKEN", "x")
    record = {"version": 1, "host": "h", "addresses": [], "state": "retrying", "step": "image", "attempt": 3,
              "error": "403 \x1b[31m", "next_s": 40, "at": "2026-11-22T10:00:00Z"}  # fmt: skip
    console = f"[    1.0] Linux\nosgym-boot: {json.dumps(record)}\nlogin:"
    shown = json.dumps({"Output": console}) if provider == "aws" else console
    (clouds / "console").write_text(shown)
    wanted = {"aws": "ec2 get-console-output", "gcp": "compute instances"}[provider]
    tool = clouds / {"aws": "aws", "gcp": "gcloud"}[provider]
    tool.write_text(f'#!/bin/sh\ncase "$*" in "{wanted}"*) cat {clouds}/console ;; *) exit 2 ;; esac\n')
    path = at(tmp_path, provider)
    content = json.loads(path.read_text())
    content["hosts"][0]["url"] = "https://127.0.0.1:9"
    path.write_text(json.dumps(content))
    (found,) = json.loads(run(path, "status", "--json").stdout)["hosts"]
    assert found["boot"].startswith("boot: image retrying (attempt 3, again in 40 s): 403")
    assert found["failure"]["step"] == "connect"
    text = run(path, "status")
    assert "image retrying" in text.stdout
    assert "\x1b" not in text.output
