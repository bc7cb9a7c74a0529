#!/usr/bin/env python3
"""Brings a cloud's host to serve: fetches the bootstrap, runs its steps, tries again until all are done.

    boot.py        run by osgym-boot.service at every start of the host

The host's user data holds this file, `fetch.py`, and settings (/etc/osgym/bootstrap.env). A network that is
not there yet, a role that is not known everywhere yet, a mirror that stumbles: nothing of that ends it. It
tries again, soon for `PATIENCE_S`, then every `SLOW_S`; what cannot mend itself (another SHA-256) slowly at
once.

Where it stands is a line of JSON on the console after each change, the same in /run/osgym-boot.json, and in
an object of the fleet's bucket (`osgym_infra.fleet.boot_status` reads them). Nothing of it is secret.
"""

import contextlib
import json
import os
import random
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import fetch

TARGET = Path(os.environ.get("OSGYM_BOOTSTRAP", "/usr/local/lib/osgym-bootstrap"))
SETTINGS = Path(os.environ.get("OSGYM_BOOTSTRAP_ENV", "/etc/osgym/bootstrap.env"))
RECORD = Path("/run/osgym-boot.json")
CONSOLE = Path(os.environ.get("OSGYM_CONSOLE", "/dev/console"))
PREFIX = "osgym-boot: "

FIRST_S, MOST_S, SLOW_S, PATIENCE_S = 2.0, 30.0, 300.0, 900.0
"""Between two attempts: the first time, at most, and once it has failed for `PATIENCE_S` at one step. A role
is known to all of a cloud's servers within some minutes."""
REPORT_S, REPORT_EVERY_S, REPORT_AGAIN_S, LAST_REPORT_S = 10, 2.0, 8.0, 60
"""How long the bucket has to take a record, and how soon it gets another one: Google Cloud takes one write a
second of an object."""
MOST_ERROR_CHARS = 400


class StepFailed(Exception):
    """Failure of a step, with its reason and whether a retry must fail too."""

    def __init__(self, step, why, for_good=False):
        super().__init__(why)
        self.step, self.for_good = step, for_good


def delay_s(failures, failing_s, for_good):
    """Return the pause before the next attempt, from the failures in a row of one step and their duration."""
    if for_good or failing_s > PATIENCE_S:
        return SLOW_S
    return min(FIRST_S * 2 ** min(failures - 1, 10), MOST_S)


def read_settings(text):
    """Return the settings by name; a shell reads the same file."""
    words = shlex.split(text, comments=True)
    return dict(word.split("=", 1) for word in words if "=" in word)


def unpack(text, folder):
    """Put the bootstrap's files, a JSON object of texts, into a folder of their own, all or none."""
    fresh = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True, mode=0o755)
    for name, content in json.loads(text).items():
        if not re.fullmatch(r"[a-z][a-z0-9_-]*\.(sh|py)", name):
            raise ValueError(f"{name!r} is not a setting of the bootstrap")
        (fresh / name).write_text(content, encoding="utf-8")
        (fresh / name).chmod(0o755)
    shutil.rmtree(folder, ignore_errors=True)
    fresh.rename(folder)


def fetch_package(settings):
    """Fetch the bootstrap that the settings name, unless it is here already.

    Raises:
        StepFailed: It could not be fetched, or is another one.
    """
    uri, sha256 = settings.get("OSGYM_BOOTSTRAP_URI", ""), settings.get("OSGYM_BOOTSTRAP_SHA256", "")
    mark, package = TARGET / ".sha256", Path(__file__).with_name("package.json")
    if mark.is_file() and mark.read_text() == sha256:
        return
    try:
        fetch.fetch_file(uri, package, sha256)
        unpack(package.read_text(encoding="utf-8"), TARGET)
        package.unlink()
        mark.write_text(sha256)
    except fetch.FetchFailed as error:
        raise StepFailed("bootstrap", str(error), error.for_good) from None
    except (OSError, ValueError, KeyError, fetch.http.client.HTTPException) as error:
        raise StepFailed("bootstrap", f"{type(error).__name__}: {error}") from None


def steps():
    """Return the names of the steps and their deadlines."""
    done = subprocess.run(
        [TARGET / "bootstrap.sh", "steps"], capture_output=True, text=True, timeout=60, check=False
    )
    found = [line.split() for line in done.stdout.splitlines()]
    if done.returncode != 0 or not found:
        raise StepFailed("bootstrap", f"bootstrap.sh steps: {(done.stderr or done.stdout)[-200:]}")
    return [(name, float(most_s)) for name, most_s in found]


def run_step(name, most_s, say):
    """Run one step and pass its output on.

    Raises:
        StepFailed: It did not do it, or not in time.
    """
    process = subprocess.Popen(
        [TARGET / "bootstrap.sh", "up", name],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="replace", start_new_session=True,
    )  # fmt: skip
    last = []

    def read():
        with process.stdout as lines:
            for line in lines:
                say(line.rstrip("\n"))
                last[:] = [*last[-9:], line.rstrip("\n")]

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        code = process.wait(most_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise StepFailed(name, f"was not finished within {most_s:g} s") from None
    reader.join(5)
    if code != 0:
        marker = f"osgym: {name} failed: "
        why = next((line[len(marker) :] for line in last if line.startswith(marker)), "; ".join(last[-3:]))
        raise StepFailed(name, why or f"exit code {code}", code == fetch.WILL_NOT_PASS)


def identity(uri):
    """Return the cloud's name of this host and its addresses; the bucket's URI scheme tells the cloud."""
    if uri.startswith("s3:"):
        base = f"{fetch.AWS_METADATA}/latest"
        token = fetch.text_of(
            fetch.call(f"{base}/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"}, "PUT", None, 5)
        )
        headers, prefix = {"X-aws-ec2-metadata-token": token}, f"{base}/meta-data/"
        name, addresses = "instance-id", ("local-ipv4", "public-ipv4")
    else:
        headers, prefix = {"Metadata-Flavor": "Google"}, f"{fetch.GCP_METADATA}/computeMetadata/v1/instance/"
        card = "network-interfaces/0"
        name, addresses = "name", (f"{card}/ip", f"{card}/access-configs/0/external-ip")
    own = fetch.text_of(fetch.call(prefix + name, headers, timeout_s=5)).strip()
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,62}", own):
        raise fetch.FetchFailed("the metadata service does not name this host")
    found = []
    for address in addresses:
        with contextlib.suppress(fetch.FetchFailed):  # a host may have no public one
            found.append(fetch.text_of(fetch.call(prefix + address, headers, timeout_s=5)).strip())
    return own, [address for address in found if address]


class Reporter:
    """Says where the boot stands. The bucket is written to by a thread of its own: only the newest record,
    and a bucket that does not take it holds nothing up."""

    def __init__(self, uri, attempt=0):
        self.uri = uri.rstrip("/")
        self.record = {"version": 1, "host": socket.gethostname(), "addresses": [], "attempt": attempt}
        self._known = False
        self._changed = threading.Condition()
        self._unsent = None
        self._busy = False
        if self.uri:
            threading.Thread(target=self._send_all, daemon=True).start()

    def say(self, line):
        """Pass a line on to the journal, and lines of the bootstrap to the console."""
        print(line, flush=True)
        if not line.startswith(("osgym: ", PREFIX)):
            return
        with contextlib.suppress(OSError):
            # Nobody may read at the other end.
            handle = os.open(CONSOLE, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY)
            try:
                os.write(handle, f"{line}\r\n".encode())
            finally:
                os.close(handle)

    def report(self, state, step, error="", next_s=None):
        """Write a record on this host at once and into the bucket soon."""
        with self._changed:
            at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            short = error if len(error) <= MOST_ERROR_CHARS else f"…{error[-MOST_ERROR_CHARS:]}"
            self.record |= {"state": state, "step": step, "error": short, "next_s": next_s, "at": at}
            text = json.dumps(self.record)
            self._unsent = text
            self._changed.notify()
        if state != "running" or self.record["attempt"] == 1:
            self.say(PREFIX + text)
        temporary = RECORD.with_suffix(".new")
        with contextlib.suppress(OSError):
            temporary.write_text(text + "\n", encoding="utf-8")
            temporary.replace(RECORD)

    def flush(self, timeout_s):
        """Wait until the bucket has the newest record."""
        if not self.uri:
            return
        with self._changed:
            self._changed.wait_for(lambda: self._unsent is None and not self._busy, timeout_s)

    def _send_all(self):
        refused = ""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._unsent is not None)
                text, self._unsent, self._busy = self._unsent, None, True
            try:
                self._send(text)
                refused = ""
                wait_s = REPORT_EVERY_S
            except Exception as error:  # noqa: BLE001 - whatever it is, the boot goes on
                if str(error) != refused:  # said once
                    refused = str(error)
                    print(f"the status could not be written: {refused}", flush=True)
                wait_s = REPORT_AGAIN_S
            with self._changed:
                if wait_s == REPORT_AGAIN_S and self._unsent is None:
                    self._unsent = text
                self._busy = False
                self._changed.notify_all()
            time.sleep(wait_s)

    def _send(self, text):
        if not self._known:
            host, addresses = identity(self.uri)
            with self._changed:
                self.record |= {"host": host, "addresses": addresses}
            self._known = True
            text = json.dumps({**json.loads(text), "host": host, "addresses": addresses})
        fetch.put_object(f"{self.uri}/{self.record['host']}.json", text, REPORT_S)


def former_attempts():
    """Return the number of attempts since the host started, by processes that were killed."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        return int(json.loads(RECORD.read_text(encoding="utf-8"))["attempt"])
    return 0


def attempt_all(reporter, settings):
    """Run all steps from the first; a step that is done says so and changes nothing."""
    reporter.report("running", "bootstrap")
    fetch_package(settings)
    for name, most_s in steps():
        reporter.report("running", name)
        run_step(name, most_s, reporter.say)


def main():
    settings = read_settings(SETTINGS.read_text(encoding="utf-8"))
    reporter = Reporter(settings.get("OSGYM_STATUS_URI", ""), former_attempts())
    failing, failures, since = "", 0, 0.0
    while True:
        reporter.record["attempt"] += 1
        try:
            attempt_all(reporter, settings)
        except StepFailed as error:
            if error.step != failing:
                failing, failures, since = error.step, 0, time.monotonic()
            failures += 1
            wait_s = delay_s(failures, time.monotonic() - since, error.for_good)
            state = "failed" if wait_s == SLOW_S else "retrying"
            reporter.report(state, error.step, str(error), round(wait_s))
            # Not all hosts of a fleet in the same second.
            time.sleep(wait_s * random.uniform(0.8, 1.2))  # noqa: S311 - spread, not secrets
        else:
            reporter.report("serving", "health")
            reporter.flush(LAST_REPORT_S)
            return 0


if __name__ == "__main__":
    sys.exit(main())
