"""`osgym data replay`: what the page and the moving picture are made of."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import av
import pytest
from click.testing import CliRunner, Result
from PIL import Image
from tests.support.data_episodes import LOST, play

from osgym_cli.main import main
from osgym_cli.replay import _located
from osgym_sdk.data import Dataset, DatasetWriter, episode_page
from osgym_sdk.data._animation import CAPTION_SHARE
from osgym_sdk.data._replay_words import cut, in_words, marks

HOSTILE = '</script><script>alert(1)</script><img src=x onerror="x">\x1b[31m\u202e'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An episode that was scored, and one that was lost."""
    path = tmp_path_factory.mktemp("replay") / "set"
    with DatasetWriter(path) as writer:
        play(writer, {"id": HOSTILE, "instruction": HOSTILE}, 3, reward=1.0, infos=[{"text": HOSTILE}] * 3)
        play(writer, {"id": "lost"}, 1, reward=None, failure=LOST, first_frame=50)
    return path


class _Parts(HTMLParser):
    """Elements, and what is in those that are not shown."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, Any]]] = []
        self.inside: dict[str, str] = {}
        self._key = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.append((tag, given))
        self._key = given.get("id") or tag

    def handle_endtag(self, tag: str) -> None:
        self._key = ""

    def handle_data(self, data: str) -> None:
        self.inside[self._key] = self.inside.get(self._key, "") + data


def run(*args: str | Path) -> Result:
    """The command in this process."""
    return CliRunner().invoke(main, ["data", "replay", *map(str, args)])


def named(folder: Path, task: str) -> str:
    """The name of the episode of a task."""
    return next(one.name for one in Dataset.open(folder).episodes() if task in str(one.task_id))


def test_a_page_holds_all_and_runs_its_own_script_only(folder: Path, tmp_path: Path) -> None:
    """The policy names the hash of the one script, and allows no connection."""
    done = run(folder, named(folder, "alert"), "--out", tmp_path / "page.html")
    assert done.exit_code == 0, done.output
    parts = _Parts((tmp_path / "page.html").read_text("utf-8"))
    policy = next(given["content"] for _, given in parts.tags if given.get("http-equiv"))
    digest = base64.b64encode(hashlib.sha256(parts.inside["script"].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy and "default-src 'none'" in policy
    assert "unsafe" not in policy and "connect" not in policy
    assert [given.get("type") for tag, given in parts.tags if tag == "script"] == ["application/json", None]
    assert not any(name.startswith("on") for _, given in parts.tags for name in given)
    assert not any("://" in str(value) for _, given in parts.tags for value in given.values())
    told = json.loads(parts.inside["episode"])
    assert [step["number"] for step in told["steps"]] == [1, 2, 3] and told["screen"] == [64, 48]
    assert told["reward"] == {"text": "reward 1, 3 steps", "tone": "good"}
    assert told["steps"][0]["marks"] and told["steps"][0]["text"].startswith("</script>")
    assert "\u202e" not in json.dumps(told["steps"], ensure_ascii=False)


def test_an_episode_of_this_machines_host_agent_needs_its_name_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is looked for where `osgym host serve` records; nothing outside of that is reached."""
    monkeypatch.setattr("osgym_cli.replay.default_data_dir", lambda: tmp_path)
    recorded = tmp_path / "trajectories" / "e12"
    recorded.mkdir(parents=True)
    (recorded / "steps.jsonl").write_text("")
    assert _located(Path("e12")) == recorded
    for missing in ("e13", "trajectories/../e12"):
        done = run(missing)
        assert (done.exit_code, "below" in done.output) == (2, True), done.output


def test_frames_are_kept_once_and_read(folder: Path) -> None:
    """Four screens for three steps, each with a thumbnail."""
    episode = Dataset.open(folder).episode(named(folder, "alert"))
    parts = _Parts(episode_page(episode))
    chunks = [given["id"] for tag, given in parts.tags if tag == "template"]
    assert sorted(chunks) == ["f0", "f1", "f2", "f3", "t0", "t1", "t2", "t3"]
    steps = json.loads(parts.inside["episode"])["steps"]
    assert [(step["before"], step["after"]) for step in steps] == [(0, 1), (1, 2), (2, 3)]
    assert base64.b64decode(parts.inside["f0"])[8:12] == b"WEBP"
    notes = [note["short"] for step in steps for note in step["notes"]]
    assert notes == ["not final", "not final"]


def test_a_page_is_made_smaller_until_it_fits(tmp_path: Path) -> None:
    """Images of noise, which no format makes small."""
    noise = io.BytesIO()
    Image.effect_noise((1280, 720), 80).convert("RGB").save(noise, "PNG")
    sizes = []
    with DatasetWriter(tmp_path / "set") as writer:
        play(writer, {"id": "noisy"}, 1, reward=0.0, image=noise.getvalue())
    episode = next(Dataset.open(tmp_path / "set").episodes())
    for max_mib in (20.0, 0.3):
        sizes.append(len(episode_page(episode, max_mib=max_mib)))
    assert sizes[1] < sizes[0] / 3


def test_a_moving_picture_shows_each_step_and_the_end(folder: Path, tmp_path: Path) -> None:
    """With the mark in its own colour, and a line below that says what was done and what it earned."""
    done = run(folder, named(folder, "alert"), "--out", tmp_path / "loop.gif", "--width", "320")
    assert done.exit_code == 0, done.output
    with Image.open(tmp_path / "loop.gif") as film:
        assert (film.n_frames, film.size) == (4, (320, 240 + 320 // CAPTION_SHARE))
        colours = film.convert("RGB").getcolors(1 << 20)
        said = []
        for number in range(film.n_frames):
            film.seek(number)
            strip = film.convert("L").crop((0, 240, *film.size))
            said.append(strip.tobytes())
            assert min(said[-1]) < 50 and max(said[-1]) > 200
    assert len(set(said)) == 4
    assert colours is not None
    assert any(math.dist(colour, (229, 22, 43)) < 40 for _, colour in colours if isinstance(colour, tuple))


def test_a_video_shows_each_step_and_the_end(folder: Path, tmp_path: Path) -> None:
    """even sizes, each step its time, the mark in its colour, no half a file."""
    target = tmp_path / "loop.mp4"
    done = run(folder, named(folder, "alert"), "--out", target, "--width", "321")
    assert done.exit_code == 0, done.output
    with av.open(str(target)) as film:
        [stream] = film.streams.video
        frames = [frame.to_image() for frame in film.decode(stream)]
        assert (stream.codec_context.name, stream.width, stream.height) == ("h264", 320, 252)
        assert float(stream.average_rate) == 5
    assert len(frames) == 3 * 4 + 4 + round((2.5 - 0.8) * 5)
    colours = frames[0].getcolors(1 << 20)
    assert any(math.dist(colour, (229, 22, 43)) < 60 for _, colour in colours if isinstance(colour, tuple))
    nowhere = run(folder, named(folder, "alert"), "--out", tmp_path / "no" / "loop.mp4")
    assert nowhere.exit_code == 1 and "loop.mp4" in nowhere.output
    assert [path.name for path in tmp_path.iterdir() if "loop" in path.name] == ["loop.mp4"]


def test_what_cannot_be_shown_is_a_line(folder: Path, tmp_path: Path) -> None:
    """An unknown name, none where there are two, a form that is none."""
    assert "the data set has 2 episodes; name one" in run(folder).output
    assert run(folder, "nosuch").exit_code == 1
    wrong = run(folder, "--out", tmp_path / "a.avi")
    assert wrong.exit_code == 2 and ".html, .gif, .mp4" in wrong.output
    assert run(tmp_path / "nowhere").exit_code == 2


@pytest.mark.parametrize(
    ("action", "drawn"),
    [
        ({"op": "click", "x": 3, "y": 4.25}, [{"x": 3, "y": 4.2}]),
        ({"op": "drag", "path": [[1, 2], [3, 4]]}, [{"path": [(1, 2), (3, 4)]}]),
        ({"op": "drag", "path": [[1, 2], "x"]}, []),
        ({"op": "drag", "path": [[1, "<svg>"]]}, []),
        ({"op": "click", "x": "1", "y": 2}, []),
        ({"op": "click", "x": math.nan, "y": 2}, []),
        ({"op": "key", "keys": ["a"]}, []),
    ],
)
def test_what_is_drawn_of_an_action(action: dict[str, Any], drawn: list[Any]) -> None:
    """Numbers only; what is no place is not drawn."""
    assert marks(action) == drawn


def test_words_are_bounded_and_on_one_line() -> None:
    """Whatever an action holds."""
    assert in_words({"op": "type", "text": "a\nb"}) == 'type text="a\\nb"'
    assert len(in_words({"op": "type", "text": "x" * 10**6})) < 20_100
    assert not re.search(r"[\x00-\x08\x1b\u202e]", cut("\x1b[1m\u202e\x00"))
