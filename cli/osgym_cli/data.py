"""`osgym data`: data sets of trajectories, as `osgym_sdk.data` writes them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import Progress, TaskID

from osgym_cli.datasets import dataset_errors, dataset_module, find_episode, open_dataset
from osgym_cli.evals.jobs import share_certified
from osgym_cli.replay import replay
from osgym_host.cli.terminal import show_table

if TYPE_CHECKING:
    from osgym_sdk.data import Dataset, Episode

_SHOWN = (
    "task_id", "instruction", "reward", "termination_reason", "failure_code", "failure", "episode",
    "episode_id", "host", "replica_id", "image_digest", "seed",
)  # fmt: skip
"""Columns of an episode in the terminal."""
FORMS = ("huggingface", "webdataset", "chat")
_FOLDER = click.Path(path_type=Path, file_okay=False)


@click.group(short_help="Look at data sets of trajectories, export and convert them.")
def data() -> None:
    """Look at data sets of trajectories, export and convert them.

    A data set is the folder that a training script writes with
    `client.run(tasks, policy, record=DatasetWriter("runs/monday"))`, or that `osgym data convert` makes of
    what a host agent recorded. It can be read while it is written.

    \b
    Examples:
      osgym data stats runs/monday                      what is in it
      osgym data view runs/monday                       its episodes
      osgym data view runs/monday 3f2a --out page.html  one of them as a page
      osgym data export runs/monday out --form chat --grammar uitars --min-reward 1

    \b
    Exit codes: 0 done - 1 the data set or the target cannot be used - 2 wrong arguments.
    """


data.add_command(replay)


@data.command(
    epilog="\b\nExamples:\n"
    "  osgym data view runs/monday                       its episodes\n"
    "  osgym data view runs/monday 3f2a                  the steps of one\n"
    "  osgym data view runs/monday 3f2a --out page.html\n",
)
@click.argument("path", type=_FOLDER)
@click.argument("episode", required=False)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="HTML page to write.")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="Number of episodes.")
def view(path: Path, episode: str | None, out: Path | None, limit: int) -> None:
    """List the episodes of the data set PATH, or show one.

    EPISODE is the beginning of its name, as the list has it, or the host's. Without --out its steps are shown
    in the terminal; with it one page of HTML is written, that of `osgym data replay`.
    """
    with dataset_errors():
        dataset = open_dataset(path)
        if episode is None and out is None:
            _list(dataset, limit)
            return
        found = find_episode(dataset, episode)
        if out is None:
            _print(found)
            return
        try:
            out.write_text(dataset_module().episode_page(found), "utf-8")
        except OSError as error:
            raise click.ClickException(f"{out}: {error.strerror}") from error
        click.echo(out)


@data.command(
    epilog="\b\nExamples:\n"
    "  osgym data stats runs/monday\n"
    "  osgym data stats runs/monday --json | jq .episodes\n"
    "  osgym data stats runs/monday --certificates out/certify/certificates.jsonl\n",
)
@click.argument("path", type=_FOLDER)
@click.option("--certificates", type=click.Path(path_type=Path, exists=True, dir_okay=False),
              help="Record of `osgym task certify`: say how many tasks it certifies.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of tables.")
def stats(path: Path, certificates: Path | None, as_json: bool) -> None:
    """Count what the data set PATH holds: episodes, success by task, lengths, finality, failures.

    An episode is solved if its reward is 1 or more. Episodes lost to the infrastructure have no reward and
    are not counted as scored.
    """
    with dataset_errors():
        dataset = open_dataset(path)
        with _bar("reading", dataset.episode_count) as advance:
            found = dataset_module().dataset_stats(dataset, advance)
        certified = None if certificates is None else share_certified(_tasks_in(dataset), certificates)
    lengths = {name: found.quantile(found.lengths, at) for name, at in (("p50", 0.5), ("p95", 0.95))}
    times = {name: found.quantile(found.step_ms, at) for name, at in (("p50", 0.5), ("p95", 0.95))}
    counts: dict[str, int | str] = {
        "episodes": found.episodes,
        "complete": found.complete,
        "steps": found.steps,
        "frames": found.frames,
    }
    if certified is not None:
        counts["certified_tasks"] = certified
    if as_json:
        tasks = {
            name: {
                "episodes": t.episodes,
                "scored": t.scored,
                "solved": t.solved,
                "mean_reward": t.mean_reward,
            }
            for name, t in found.tasks.items()
        }
        said = {**counts, "length": lengths, "step_ms": times, "tasks": tasks}
        said |= {"endings": found.endings, "failures": found.failures, "finality": found.final}
        click.echo(json.dumps(said))
        return
    show_table(("what",), ("count",), [(name, str(count)) for name, count in counts.items()])
    show_table(("",), ("p50", "p95"), [("steps of an episode", *map(_figure, lengths.values())),
                                 ("ms of a step", *map(_figure, times.values()))])  # fmt: skip
    rows = [
        (_short(name), str(t.episodes), str(t.scored), f"{t.solved / t.scored:.0%}" if t.scored else "-",
         "-" if t.mean_reward is None else f"{t.mean_reward:.2f}")
        for name, t in sorted(found.tasks.items())
    ]  # fmt: skip
    click.echo()
    show_table(("task",), ("episodes", "scored", "solved", "mean reward"), rows)
    for title, counter in (("ended", found.endings), ("failure", found.failures), ("frame", found.final)):
        if counter:
            click.echo()
            show_table(
                (title,), ("count",), [(_short(name), str(count)) for name, count in counter.most_common()]
            )


@data.command(
    epilog="\b\nExamples:\n"
    "  osgym data export runs/monday out/hf\n"
    "  osgym data export runs/monday out/chat --form chat --grammar uitars --min-reward 1\n"
    "  osgym data export runs/monday out/tar --form webdataset --task write-note --all\n",
)
@click.argument("path", type=_FOLDER)
@click.argument("out", type=_FOLDER)
@click.option("--form", type=click.Choice(FORMS), default="huggingface", show_default=True,
              help="Form of the export.")  # fmt: skip
@click.option(
    "--grammar", default="osgym", show_default=True, help="chat: grammar of the actions: uitars, qwen, …"
)
@click.option("--history", type=click.IntRange(0), default=4, show_default=True, help="chat: earlier steps.")
@click.option("--min-reward", type=float, help="Lowest reward of the episodes to export.")
@click.option("--task", "tasks", multiple=True, metavar="ID", help="Task to export; repeatable.")
@click.option("--all", "everything", is_flag=True, help="Include episodes not valid for training.")
def export(
    path: Path,
    out: Path,
    form: str,
    grammar: str,
    history: int,
    min_reward: float | None,
    tasks: tuple[str, ...],
    everything: bool,
) -> None:
    """Write the data set PATH to the empty folder OUT in a form that others load.

    \b
    huggingface  datasets.load_dataset(OUT): a row per step, images as features
    webdataset   tar shards: of each step .before.png, .after.png, .json
    chat         train.jsonl of messages for fine-tuning, and images/: the model's words where they were
                 recorded, else its actions in the grammar of --grammar (a version after a slash)

    Episodes that ended for a reason other than the policy are left out unless --all is given.
    """
    with dataset_errors():
        module = dataset_module()
        chosen: dict[str, Any] = {} if everything else {"valid_for_training": True}
        if tasks:
            chosen["task_id"] = list(tasks)
        dataset = open_dataset(path).filter(min_reward=min_reward, **chosen)
        if not len(dataset):
            raise click.ClickException(f"{path} has no step to export; --all includes every episode")
        with _bar("exporting", dataset.episode_count) as advance:
            if form == "chat":
                done = module.export_chat(dataset, out, advance, grammar=grammar, history=history)
            elif form == "webdataset":
                done = module.export_webdataset(dataset, out, advance)
            else:
                done = module.export_huggingface(dataset, out, advance)
    click.echo(f"{done.steps} steps in {out}")
    if done.skipped:
        click.echo(f"{done.skipped} steps were skipped; the reason of the first: {done.reason}", err=True)


@data.command(
    epilog="\b\nExamples:\n  osgym data convert /var/lib/osgym/trajectories runs/monday\n",
)
@click.argument("recordings", type=_FOLDER)
@click.argument("out", type=_FOLDER)
def convert(recordings: Path, out: Path) -> None:
    """Add what a host agent recorded to the data set OUT.

    RECORDINGS is the folder trajectories in the host agent's data_dir, or the folder of one episode in it. It
    has images if the host agent's setting `trajectory` is `frames`. Episodes that OUT already has and those
    that are still running are left out, so the command can be repeated.
    """
    with dataset_errors():
        module = dataset_module()
        folders = module.recorded_episodes(recordings)
        with _bar("converting", len(folders)) as advance:
            done = module.convert_recordings(recordings, out, advance)
    click.echo(
        f"{done.episodes} episodes added, {done.present} were already there, {done.running} are still running"
    )
    if done.bad_lines:
        click.echo(f"{done.bad_lines} lines could not be read", err=True)


@contextlib.contextmanager
def _bar(title: str, total: int) -> Iterator[Callable[[], None]]:
    """Show a progress bar on a terminal's stderr, nothing elsewhere."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task: TaskID = progress.add_task(title, total=total)
        yield lambda: progress.advance(task)


def _tasks_in(dataset: Dataset) -> list[dict[str, Any]]:
    """Return the different tasks of a data set.

    Raises:
        DatasetError: The data set cannot be read.
    """
    tasks = {episode.first.raw["task"]: episode.first["task"] for episode in dataset.episodes()}
    return [task for task in tasks.values() if isinstance(task, dict)]


def _list(dataset: Dataset, limit: int) -> None:
    episodes = list(dataset.episodes())
    rows = [
        (one.name[:12], _short(one.task_id or "-"), _short(one.values["termination_reason"] or "goes on"),
         _short(one.values["failure_code"] or ""), str(len(one)),
         "-" if one.reward is None else f"{one.reward:g}")
        for one in episodes[-limit:]
    ]  # fmt: skip
    show_table(("episode", "task", "ended", "failure"), ("steps", "reward"), rows)
    if len(episodes) > limit:
        click.echo(f"the newest {limit} of {len(episodes)}; --limit shows more", err=True)


def _print(episode: Episode) -> None:
    first = episode.first
    for name in _SHOWN:
        if first[name] is not None:
            click.echo(f"{name:20}{_short(str(first[name]), 200)}")
    for step in episode.steps:
        time_ms = "" if step["total_ms"] is None else f", {step['total_ms']:.0f} ms"
        final = {True: ", final", False: ", not final", None: ""}[step["final"]]
        click.echo(f"\nstep {step['step']}{time_ms}{final}, frame {step['frame'] or '-'}")
        if step["text"]:
            click.echo(f"  said {_short(step['text'], 300)}")
        for action in step.actions:
            click.echo(f"  did  {_short(json.dumps(action), 300)}")
        if step["refused"]:
            click.echo(f"  refused: {_short(step['refused'], 300)}")


def _short(text: str, length: int = 60) -> str:
    """Shorten a text of a guest or a model, without the characters that control terminals."""
    plain = "".join(c if c.isprintable() else "�" for c in str(text))
    return plain if len(plain) <= length else plain[: length - 1] + "…"


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"
