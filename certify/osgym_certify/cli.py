"""`osgym task certify` and `osgym task certificates`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from rich.console import Console

from osgym_certify.certificate import Certificate, Verdict
from osgym_certify.page import certificates_page
from osgym_certify.play import Settings
from osgym_certify.record import append, done_digests, read_record
from osgym_certify.run import Campaign, NoImage, image_of
from osgym_certify.sense import Severity, duplicates
from osgym_certify.signing import KeyFileError, is_signed, private_key, public_key, signed
from osgym_certify.sources import UnknownName, subjects
from osgym_certify.subject import Subject
from osgym_certify.summary import verdicts
from osgym_certify.table import certificates_table
from osgym_certify.terminal import TaskProgress, show
from osgym_cli.episode_options import Hosts, episode_host_options
from osgym_host.cli.terminal import EXIT_INTERRUPTED, interrupt_once
from osgym_host.logs import escape_controls
from osgym_protocol.option_groups import GroupedCommand, option_group
from osgym_sdk import ConfigError, OSGymError

EXIT_INFRASTRUCTURE = 1
EXIT_NOT_CERTIFIED = 3
WIDTH = 140
"""Columns of the table where there is no terminal."""
RECORD = "certificates.jsonl"
PAGE = "certificates.html"
EPILOG = """
\b
Examples:
  osgym host serve                                   # in another terminal: real desktops
  osgym task certify tasks/mousepad/write-note.json
  osgym task certify tasks calc.aggregate edit.lines --levels 1,3 --at-once 4
  osgym task certify my-tasks --key key.pem          # signed certificates, to pass on with the tasks

\b
An end that is right although it differs from the golden one is declared in the task:
  "osgym": {"allows": [{"end": "text: one line exchanged with the next", "why": "any order is right"}]}

\b
Exit codes: 0 all tasks are certified - 1 the infrastructure failed, and the same command tries again -
2 wrong usage - 3 a task is faulty or unproven - 130 Ctrl-C.
"""
RECORD_EPILOG = """
\b
Examples:
  osgym task certificates out/certify/certificates.jsonl
  osgym task certificates out/certify/certificates.jsonl --public-key public.pem --page certificates.html
  osgym task certificates out/certify/certificates.jsonl --table tasks/CERTIFICATES.md

\b
Exit codes: 0 all tasks are certified - 2 wrong usage - 3 a task is not, or a signature is wrong.
"""
TRIED = option_group("End states")
GENERATED = option_group("Generated tasks")


@dataclass(frozen=True, slots=True)
class _Work:
    hosts: Hosts
    subjects: Sequence[Subject]
    at_once: int
    signer: Ed25519PrivateKey | None
    parameters: dict[str, int]
    out: Path
    again: bool


def _levels(context: click.Context, parameter: click.Parameter, value: str) -> list[int]:
    try:
        found: list[int] = []
        for part in value.split(","):
            first, _, last = part.partition("-")
            found += range(int(first), int(last or first) + 1)
    except ValueError as error:
        raise click.BadParameter(f"levels must look like 3, 1-5 or 1,4, not {value[:40]!r}") from error
    return found


@click.command(cls=GroupedCommand, epilog=EPILOG)
@click.argument("tasks", nargs=-1, required=True, metavar="FILE|DIR|FAMILY...")
@TRIED(
    "--golden-runs",
    type=click.IntRange(2, 100),
    default=3,
    show_default=True,
    help="Number of desktops on which the golden end must earn 1.",
)
@TRIED(
    "--max-ends",
    type=click.IntRange(1, 5000),
    default=150,
    show_default=True,
    help="Largest number of end states of one task.",
)
@TRIED("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed that draws the end states.")
@GENERATED(
    "--levels", callback=_levels, default="3", show_default=True, help="Levels, such as 3, 1-5 or 1,4."
)
@GENERATED(
    "--seeds", type=click.IntRange(1), default=1, show_default=True, help="Number of seeds of each level."
)
@GENERATED("--first-seed", type=click.IntRange(0), default=0, show_default=True, help="First seed.")
@episode_host_options
@click.option(
    "--at-once",
    type=click.IntRange(1, 4096),
    default=2,
    show_default=True,
    help="Number of tasks certified at once, each on one desktop at a time.",
)
@click.option(
    "--key",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Ed25519 private key (PEM) that signs the certificates.",
)
@click.option("--again", is_flag=True, help="Also certify tasks that the record has.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("out/certify"),
    show_default=True,
    help="Folder of the record and the page.",
)
def certify(
    tasks: tuple[str, ...],
    golden_runs: int,
    max_ends: int,
    seed: int,
    levels: list[int],
    seeds: int,
    first_seed: int,
    hosts: Hosts,
    at_once: int,
    key: Path | None,
    again: bool,
    out: Path,
) -> None:
    """Try many end states of each task on real desktops, and record whether each earned what it must.

    Of each task: the untouched desktop, the author's right and wrong ways, the golden end on several
    desktops. Then mutations of the golden end (each must earn 0) and equivalents of it (each must earn 1),
    made by machine from the files that the oracle changed. The record holds for the tasks' content and for
    the golden image. The same command goes on where it was broken off.
    """
    try:
        found, wrong = subjects(tasks, out / "generated", range(first_seed, first_seed + seeds), levels)
        signer = None if key is None else private_key(key)
    except (UnknownName, KeyFileError) as error:
        raise click.UsageError(escape_controls(str(error))) from error
    except OSError as error:
        raise click.ClickException(f"{out}: {error.strerror or error}") from error
    among = duplicates({subject.name: subject.task for subject in found})
    wrong += [f"{one.code}: {one.message}" for one in among if one.severity is Severity.WRONG]
    for line in (
        *wrong,
        *(f"{one.code}: {one.message}" for one in among if one.severity is not Severity.WRONG),
    ):
        click.echo(f"osgym: {escape_controls(line)}", err=True)
    if not found:
        raise click.UsageError("none of the files is a task that can be read")
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    parameters = {"seed": seed, "golden_runs": golden_runs, "max_ends": max_ends}
    made = _certified(_Work(hosts, found, at_once, signer, parameters, out, again), console)
    _write(out / PAGE, certificates_page(made))
    show(console, made)
    console.print(f"\nRecord: {out / RECORD}\nPage:   {out / PAGE}", highlight=False, markup=False)
    sys.exit(_exit_code(made, bool(wrong)))


@click.command(epilog=RECORD_EPILOG)
@click.argument("record", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--public-key",
    "public_key_file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Ed25519 public key (PEM): only certificates that it signed count.",
)
@click.option("--page", type=click.Path(path_type=Path, dir_okay=False), help="File for the page.")
@click.option(
    "--table",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File for a Markdown table, to be kept beside the tasks.",
)
def certificates(record: Path, public_key_file: Path | None, page: Path | None, table: Path | None) -> None:
    """Show a record of certificates, and check its signatures."""
    found = read_record(record)
    unsigned: list[Certificate] = []
    if public_key_file is not None:
        try:
            key = public_key(public_key_file)
        except KeyFileError as error:
            raise click.UsageError(str(error)) from error
        unsigned = [one for one in found if not is_signed(one, key)]
    for one in unsigned:
        click.echo(f"osgym: {escape_controls(one.task)}: no valid signature by this key", err=True)
    if page is not None:
        _write(page, certificates_page(found))
    if table is not None:
        _write(table, certificates_table(found))
    show(Console(width=None if sys.stdout.isatty() else WIDTH), found)
    sys.exit(EXIT_NOT_CERTIFIED if unsigned else _exit_code(found, False))


def _certified(work: _Work, console: Console) -> list[Certificate]:
    """Certify what the record lacks; return the certificates of all tasks on the image of the hosts.

    Raises:
        click.ClickException: The hosts cannot be used, or the record cannot be read or written.
    """
    try:
        return asyncio.run(_certify(work, console))
    except (KeyboardInterrupt, asyncio.CancelledError):
        click.echo("interrupted; the same command goes on. No desktop is still leased", err=True)
        sys.exit(EXIT_INTERRUPTED)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    except NoImage as error:
        raise click.ClickException(escape_controls(str(error))) from error
    except OSGymError as error:
        raise click.ClickException(
            f"no host agent answers ({escape_controls(str(error)[:300])}).\nStart one on this machine with "
            "`osgym host serve`, or name yours with --host, --fleet or OSGYM_HOSTS."
        ) from error
    except OSError as error:
        raise click.ClickException(f"{work.out}: {error.strerror or error}") from error


async def _certify(work: _Work, console: Console) -> list[Certificate]:
    interrupt_once("stopping: releasing the desktops …")
    record, digests = work.out / RECORD, {subject.digest for subject in work.subjects}
    async with work.hosts.client() as client:
        settings = Settings(image=await image_of(client), **work.parameters)
        done = set() if work.again else done_digests(read_record(record), settings.image, settings.seed)
        left = [subject for subject in work.subjects if subject.digest not in done]
        if len(left) < len(work.subjects):
            known = len(work.subjects) - len(left)
            console.print(f"{known} of {len(work.subjects)} tasks are in the record already")
        with TaskProgress(console, len(left)) as progress:
            campaign = Campaign(
                client, left, settings, work.at_once, lambda subject, trial: progress.tried(subject.name)
            )
            async for certificate in campaign.certificates():
                append(record, certificate if work.signer is None else signed(certificate, work.signer))
                progress.done(certificate)
    return [one for one in read_record(record) if one.digest in digests and one.image == settings.image]


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror or error}") from error


def _exit_code(found: Sequence[Certificate], unread: bool) -> int:
    counts = verdicts(found)
    if counts[Verdict.FAULTY] or counts[Verdict.UNPROVEN] or unread:
        return EXIT_NOT_CERTIFIED
    return EXIT_INFRASTRUCTURE if counts[Verdict.FAILED] else 0
