"""`osgym data replay`: an episode as a page to scrub through, or as a moving picture."""

from __future__ import annotations

import contextlib
import os
import tempfile
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from osgym_cli.datasets import dataset_errors, dataset_module, find_episode, open_dataset
from osgym_host.images.store import default_data_dir

if TYPE_CHECKING:
    from osgym_sdk.data import Dataset

_FORMS = (".html", ".gif", ".mp4")


@click.command(short_help="Show an episode again, step by step, as one page of HTML.")
@click.argument("path", type=click.Path(path_type=Path))
@click.argument("episode", required=False)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File to write: .html, .gif or .mp4 [default: EPISODE.html in this folder].",
)
@click.option("--max-mib", type=click.FloatRange(0.1), default=20.0, show_default=True,
              help="html: upper bound of the page's size; images are shrunk to fit.")  # fmt: skip
@click.option("--width", type=click.IntRange(64, 3840), help="gif, mp4: pixels [default: 640, 1280].")
@click.option("--open", "show", is_flag=True, help="Open it in the browser.")
def replay(
    path: Path, episode: str | None, out: Path | None, max_mib: float, width: int | None, show: bool
) -> None:
    """Write one episode of PATH as a single self-contained page, image or video.

    PATH is a data set (`osgym data`), or the folder of an episode that a host agent recorded
    (DATA_DIR/trajectories/EPISODE; it has images where the setting `trajectory` is `frames`), or just the
    name of an episode that the host agent of this machine recorded. EPISODE is the beginning of its name,
    as `osgym data view PATH` lists it; a data set of one episode needs none.

    The page has a filmstrip, a scrubber, each action drawn on the screen that it was decided on, the model's
    output, the time of each part of a step, marks on frames that were not final, and the score. A link can
    name the step: page.html#step=7.

    \b
    Examples:
      osgym data replay runs/monday 3f2a                 3f2a….html
      osgym data replay runs/monday 3f2a --out loop.gif  for a README
      osgym data replay runs/monday 3f2a --out loop.mp4  as a video
      osgym data replay 0f3c66a4b2d84d0f --open          an episode of this machine's host agent

    \b
    Exit codes: 0 done - 1 there is no such episode, or it cannot be written - 2 wrong arguments.
    """
    if out is not None and out.suffix.lower() not in _FORMS:
        raise click.UsageError(f"--out {out}: the name must end with one of {', '.join(_FORMS)}")
    with dataset_errors(), _dataset(_located(path)) as dataset:
        found = find_episode(dataset, episode)
        target = out or Path(f"{found.name[:12]}.html")
        form, module = target.suffix.lower(), dataset_module()
        if form in (".gif", ".mp4"):
            write = module.write_gif if form == ".gif" else module.write_mp4
            write(found, target, **({} if width is None else {"width": width}))
        else:
            page = module.episode_page(found, max_mib=max_mib)
            try:
                target.write_text(page, "utf-8")
            except OSError as error:
                raise click.ClickException(f"{target}: {error.strerror}") from error
    click.echo(f"{target}  {target.stat().st_size / 1024:.0f} KiB")
    if show:
        webbrowser.open(target.resolve().as_uri())


def _located(path: Path) -> Path:
    """Return the folder of a path, or of an episode that this machine's host agent recorded."""
    if path.exists():
        return path
    recorded = default_data_dir() / "trajectories" / path
    if len(path.parts) == 1 and (recorded / "steps.jsonl").is_file():
        return recorded
    raise click.UsageError(
        f"{path}: neither a data set nor a recorded episode below {recorded.parent} "
        "(`osgym host serve` records "
        "with `trajectory: steps` or `frames`)"
    )


class EpisodeRunning(click.ClickException):
    """The episode has not ended. The host agent tells it by the exit code."""

    exit_code = os.EX_TEMPFAIL


@contextlib.contextmanager
def _dataset(path: Path) -> Iterator[Dataset]:
    """Open a data set; convert a host agent's own recording to a temporary one."""
    if not (path / "steps.jsonl").is_file():
        yield open_dataset(path)
        return
    with tempfile.TemporaryDirectory(prefix="osgym-replay-") as folder:
        done = dataset_module().convert_recordings(path, folder)
        if done.running:
            raise EpisodeRunning(f"{path}: the episode is still running; try again after its end")
        yield open_dataset(Path(folder))
