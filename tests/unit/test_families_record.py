"""What is done with a record of episodes: baselines, difficulty, pages, tasks to train on; the card."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner
from PIL import Image
from tests.support.fake_v1_host import FakeV1Host, Running, serving

from osgym_cli.main import main
from osgym_host.tasks.templating import template_key
from osgym_protocol.actions import parse_actions
from osgym_protocol.task_files import task_digest
from osgym_sdk import AsyncClient
from osgym_sdk.data import Dataset
from osgym_sdk.grammars import GRAMMARS, Context, render
from osgym_tasks import FAMILIES, LEVELS, ImageUnknown, Instance, Split, load_tasks, split_of
from osgym_tasks.baseline import SUSPICIOUS, Chance, baseline_of, earned, wilson
from osgym_tasks.card import card_markdown, counts
from osgym_tasks.cli import EXIT_WRONG, commands
from osgym_tasks.dataset import plain_steps
from osgym_tasks.difficulty import difficulties, disorder
from osgym_tasks.family import MIN_WORDINGS
from osgym_tasks.pieces import DONE, key
from osgym_tasks.record import Outcome, line_of, read_outcomes, summary
from osgym_tasks.report import report_page
from osgym_tasks.targets import placed
from osgym_tasks.verify import Trial, in_turns, play, trials_of

SCREEN = (1920, 1080)
IMAGE = "0" * 8
EDIT = FAMILIES["edit.lines"]


def outcome(trial: Trial, *, image: str = IMAGE, reward: float | None = -1.0, effort: int = 10) -> Outcome:
    """Of a trial that went as it must, or as is said."""
    one = trial.instance
    earned = trial.wanted if reward == -1.0 else reward
    failure = "" if earned is not None else "host_lost: gone"
    return Outcome(
        image, one.family, one.seed, one.level, one.name, trial.way, trial.wanted, earned, failure, 3, 1.5,
        effort, 2 * effort, 0.5, ",".join(one.vary),
    )  # fmt: skip


def proof(instance: Instance, *, image: str = IMAGE, effort: int = 10) -> list[Outcome]:
    """All of an instance, as it must be."""
    return [outcome(trial, image=image, effort=effort) for trial in trials_of(instance)]


def write(path: Path, outcomes: list[Outcome]) -> Path:
    """As a record."""
    path.write_text("".join(map(line_of, outcomes)))
    return path


@pytest.mark.parametrize("policy", list(Chance))
def test_a_baseline_is_the_same_each_time_and_can_be_sent(policy: Chance) -> None:
    """Its actions are as many as were asked for, in steps of several; another instance gets others."""
    made = baseline_of(EDIT.make(0, 2), policy, 130)
    assert made.steps == baseline_of(EDIT.make(0, 2), policy, 130).steps
    assert made.wanted == 0.0
    if policy is Chance.NOTHING:
        assert (made.way, made.steps) == ("baseline: nothing", [])
        return
    assert (made.steps[-1], made.patient) == (DONE, False)
    *steps, _ = made.steps
    assert [len(step) for step in steps] == [25, 25, 25, 25, 25, 5]
    for step in steps:
        parse_actions(step, SCREEN)
    assert made.way == f"baseline: {policy} 130"
    others = [baseline_of(one, policy, 130) for one in (EDIT.make(1, 2), EDIT.make(0, 3))]
    assert all(other.steps != made.steps for other in others)
    ops = {action["op"] for step in steps for action in step}
    assert ops == (
        {"key", "type"} if policy is Chance.KEYBOARD else {"key", "type", "click", "scroll", "drag"}
    )


def test_what_chance_earns_is_said_with_its_interval() -> None:
    """By family and policy; above 0.05 it is flagged, and proves nothing of the instance."""
    trials = [baseline_of(EDIT.make(seed, 1), Chance.RANDOM, 50) for seed in range(20)]
    (row,) = earned([outcome(trial, reward=float(trial.instance.seed < 2)) for trial in trials])
    assert (row.family, row.policy, row.episodes, row.mean) == ("edit.lines", "random 50", 20, 0.1)
    assert row.low < 0.1 < row.high
    assert row.is_suspicious
    (fine,) = earned([outcome(trial, reward=float(trial.instance.seed < 1)) for trial in trials])
    assert fine.mean == SUSPICIOUS
    assert not fine.is_suspicious
    assert earned([outcome(trials[0], reward=None), *proof(EDIT.make(0, 1))]) == []
    assert wilson(0.0, 20)[0] == 0.0
    assert wilson(0.0, 20)[1] == pytest.approx(0.1611, abs=1e-4)
    assert summary([outcome(trials[0], reward=1.0), *proof(EDIT.make(0, 1))])["edit.lines"]["proved"] == 1


def test_difficulty_is_measured_and_its_order_checked() -> None:
    """Medians of oracles that succeeded; a level that costs less than the one below is named."""
    rows = difficulties([one for level in LEVELS for one in proof(EDIT.make(0, level), effort=10 * level)])
    assert [(row.level, row.instances, row.actions, row.characters, row.effort) for row in rows] == [
        (level, 1, 10 * level, 20 * level, 30 * level) for level in LEVELS
    ]
    assert disorder(rows) == []
    easier = [replace(row, effort=40.0) if row.level == 4 else row for row in rows]
    assert disorder(easier) == [("edit.lines", 3, 4)]
    failed = [outcome(trial, reward=0.0) for trial in trials_of(EDIT.make(0, 1)) if trial.wanted]
    chance = outcome(baseline_of(EDIT.make(0, 1), Chance.KEYBOARD, 9), reward=0.0)
    (row,) = difficulties([*failed, chance])
    assert (row.instances, row.effort, row.chance) == (0, None, {"keyboard 9": 0.0})


def test_a_records_lines_are_checked(tmp_path: Path) -> None:
    """Of lines that are older, torn, or of another form; a reward stays when a later try was lost."""
    good = outcome(trials_of(EDIT.make(0, 1))[0])
    old = {key: value for key, value in json.loads(line_of(good)).items() if key not in ("actions", "vary")}
    wrong = [{**old, "seed": "0"}, {**old, "level": True}, {**old, "reward": "1"}, {**old, "more": 1}, [], 5]
    lines = [*map(json.dumps, [*wrong, {**old, "duration_s": 2}]), "{", "[" * 2000]
    path = tmp_path / "record.jsonl"
    path.write_text("\n".join(lines) + "\n")
    assert read_outcomes(path) == [replace(good, actions=None, vary="", duration_s=2)]
    write(path, [good, replace(good, reward=None, failure="x: y"), replace(good, image="b", reward=None)])
    assert read_outcomes(path, IMAGE) == [good]
    assert [one.image for one in read_outcomes(path)] == ["b"], "the image of the last line"
    assert len(read_outcomes(path, every_image=True)) == 2


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]


def test_the_page_says_what_was_proved_and_what_failed() -> None:
    """It is one file, and no text of the record is markup in it."""
    evil = '"><script>alert(1)</script><img src=x onerror=alert(1)>'
    trials = trials_of(EDIT.make(0, 2))
    near = next(trial for trial in trials if trial.way.startswith("near: "))
    outcomes = [
        *proof(EDIT.make(0, 1)),
        *(outcome(trial) for trial in trials[1:]),
        replace(outcome(trials[0], reward=None), failure=f"{evil}: {evil}"),
        replace(outcome(near, reward=1.0), way=f"near: {evil}", family=evil, instance=evil, image=evil),
        outcome(baseline_of(EDIT.make(0, 1), Chance.RANDOM, 9), reward=1.0),
    ]
    page = report_page(outcomes)
    tags = _Tags()
    tags.feed(page)
    assert not {"script", "img", "link", "iframe"} & set(tags.tags)
    assert tags.links == []
    assert ">1/1</td>" in page and ">0/1</td>" in page
    assert "near earned 1, not 0" in page and "random 9" in page and "1.000" in page
    assert re.search(r"https?:|url\(|@import", page) is None
    assert "None." in report_page(proof(EDIT.make(0, 1)))


def test_tasks_are_loaded_that_are_proved_for_the_image_in_use(tmp_path: Path) -> None:
    """By split, family and level; unverified are all that were tried."""
    instances = [EDIT.make(seed, level) for seed in range(6) for level in (1, 4)]
    varied = FAMILIES["term.count"].make(0, 2, vary=["theme", "clock"])
    mine, other = "a" * 64, "ab" * 32
    half = trials_of(EDIT.make(9, 1))[:2]
    path = write(
        tmp_path / "record.jsonl",
        [
            *(one for instance in [*instances, varied] for one in proof(instance, image=mine)),
            *proof(EDIT.make(7, 1), image=other),
            *(outcome(trial, image=mine) for trial in half),
            replace(outcome(half[0], image=mine), family="gone.family", instance="gone-family-v1-l1-s0"),
            replace(outcome(half[0], image=mine), instance="edit-lines-v0-l1-s9"),
        ],
    )
    found = load_tasks(path, image=mine)
    assert [one.task for one in found] == [one.task for one in [*instances, varied]]
    assert [one.name for one in load_tasks(path, image=mine[:12], families=["term.count"])] == [varied.name]
    assert {one.level for one in load_tasks(path, image=mine, levels=[4])} == {4}
    parts = [load_tasks(path, image=mine, split=split) for split in Split]
    assert sum(map(len, parts)) == len(found)
    for split, part in zip(Split, parts, strict=True):
        assert {split_of(one) for one in part} <= {split}
    assert [one.name for one in load_tasks(path, image=other)] == [EDIT.make(7, 1).name]
    assert load_tasks(path, image="c" * 64) == load_tasks(path, image="a") == []
    assert len(load_tasks(path, verified=False)) == len(found) + 2
    near_twin = write(
        tmp_path / "two", proof(EDIT.make(0, 1), image="a" * 63 + "b") + proof(EDIT.make(0, 1), image=mine)
    )
    with pytest.raises(ImageUnknown, match="2 images that begin"):
        load_tasks(near_twin, image="a" * 12)


@pytest.fixture
def running() -> Iterator[Running]:
    """A host that rewards everything."""
    with serving(FakeV1Host()) as running:
        yield running


def test_the_image_in_use_is_asked_for(
    running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the host that `OSGYM_HOSTS` names."""
    monkeypatch.setenv("OSGYM_HOSTS", running.url)
    path = write(tmp_path / "record.jsonl", [*proof(EDIT.make(0, 1)), *proof(EDIT.make(1, 1), image="other")])
    assert [one.seed for one in load_tasks(path)] == [0]


async def test_trials_of_an_instance_share_a_task_template(running: Running) -> None:
    """Whatever is done after it, the set-up of an instance is one to a host, and the first trial makes it."""
    instances = [FAMILIES["calc.fill"].make(seed, level) for seed in (0, 1) for level in (1, 3, 5)]
    turns = in_turns(instances, 4)
    assert sorted(trial.key for trial in turns) == sorted(
        trial.key for one in instances for trial in trials_of(one)
    )
    assert [trial.way for trial in turns[:4]] == ["oracle 1"] * 4
    assert {trial.instance.name for trial in turns[:8]} == {one.name for one in instances[:4]}
    async with AsyncClient(running.url) as client:
        played = [(trial, result) async for trial, result in play(client, turns, concurrency=4)]
    keys: dict[tuple[str, str], set[str]] = {}
    for trial, result in played:
        key_of = template_key(result.task, image_digest=IMAGE, screen=SCREEN, files=())
        keys.setdefault((trial.instance.name, trial.spoil), set()).add(key_of)
    assert {name for name, spoil in keys if not spoil} == {one.name for one in instances}
    assert [len(found) for found in keys.values()] == [1] * len(keys)
    assert len(set.union(*keys.values())) == len(keys), "a spoilt set-up is another one"


def test_the_oracle_alone_is_no_proof(running: Running, tmp_path: Path) -> None:
    """It is played once, and what it earned loads nothing."""
    record = tmp_path / "record.jsonl"
    said = [
        "verify",
        "edit.lines",
        "--levels",
        "1,2",
        "--oracle-only",
        "--host",
        running.url,
        "--out",
        str(record),
    ]
    done = CliRunner().invoke(commands, said)
    assert (done.exit_code, "RIGHT" in done.output, "PROVED" in done.output) == (0, True, False), done.output
    assert [(one.way, one.reward) for one in read_outcomes(record)] == [("oracle 1", 1.0)] * 2
    assert load_tasks(record, image=read_outcomes(record)[0].image) == []


def test_baselines_are_kept_and_flagged(running: Running, tmp_path: Path) -> None:
    """A host that rewards chance makes the command fail; what is in the record is not run again."""
    record = tmp_path / "record.jsonl"
    said = ["baseline", "edit.lines", "--policy", "keyboard", "--actions", "30", "--levels", "1,2"]
    said += ["--host", running.url, "--out", str(record)]
    done = CliRunner().invoke(commands, said)
    assert (done.exit_code, "above 0.05" in done.output) == (EXIT_WRONG, True), done.output
    assert [(one.way, one.reward) for one in read_outcomes(record)] == [("baseline: keyboard 30", 1.0)] * 2
    before = record.read_text()
    assert "0 of 2 episodes to run" in CliRunner().invoke(commands, said).output
    assert record.read_text() == before


def test_a_record_becomes_a_table_and_a_page(tmp_path: Path) -> None:
    """For people, and as JSON; levels out of order are said, and with --check an error."""
    cheap = [one for level in (1, 2) for one in proof(EDIT.make(0, level), effort=30 // level)]
    record = str(write(tmp_path / "record.jsonl", cheap))
    done = CliRunner().invoke(commands, ["table", record])
    assert done.exit_code == 0 and "edit.lines: level 2 costs the oracle less than level 1" in done.output
    assert CliRunner().invoke(commands, ["table", record, "--check"]).exit_code == EXIT_WRONG
    said = json.loads(CliRunner().invoke(commands, ["table", record, "--json"]).stdout)
    assert [row["actions"] for row in said["levels"]] == [30, 15]
    page = tmp_path / "page.html"
    assert CliRunner().invoke(commands, ["report", record, "--out", str(page)]).exit_code == 0
    assert "edit.lines" in page.read_text()
    empty = write(tmp_path / "empty.jsonl", [])
    for said in (["table", str(empty)], ["table", record, "--image", "none"]):
        assert "no outcomes of this image" in CliRunner().invoke(commands, said).output


def test_oracles_become_a_page(running: Running, tmp_path: Path) -> None:
    """With pictures beside it that are there, and the instruction as text."""
    said = [
        "browse",
        "edit.lines",
        "term.count",
        "--level",
        "2",
        "--host",
        running.url,
        "--out",
        str(tmp_path),
    ]
    done = CliRunner().invoke(commands, said)
    assert done.exit_code == 0, done.output
    page = (tmp_path / "index.html").read_text()
    tags = _Tags()
    tags.feed(page)
    pictures = {link for link in tags.links if link.startswith("screens/")}
    assert {path.name for path in (tmp_path / "screens").iterdir()} == {Path(one).name for one in pictures}
    for path in pictures:
        assert Image.open(io.BytesIO((tmp_path / path).read_bytes())).format == "WEBP"
    for family in ("edit.lines", "term.count"):
        instruction = FAMILIES[family].make(0, 2).task["instruction"]
        assert instruction.replace('"', "&quot;") in page
    assert "script" not in tags.tags


def test_oracles_become_a_data_set(running: Running, tmp_path: Path) -> None:
    """Of an episode each, with the reward, the instruction and the instance's seed."""
    folder = tmp_path / "oracles"
    said = ["record", "edit.lines", "--levels", "1,2", "--first-seed", "3", "--host", running.url]
    done = CliRunner().invoke(commands, [*said, "--out", str(folder)])
    assert done.exit_code == 0, done.output
    assert re.search(r"2 episodes, 2 of them solved; \d+ steps, .* kB a step", done.output)
    data = Dataset.open(folder)
    wanted = {EDIT.make(3, level).task["instruction"] for level in (1, 2)}
    episodes = list(data.episodes())
    assert {episode.values["instruction"] for episode in episodes} == wanted
    assert [episode.values["reward"] for episode in episodes] == [1.0, 1.0]
    assert [episode.values["seed"] for episode in episodes] == [3, 3]


def test_a_data_set_says_how_many_of_its_tasks_are_certified(running: Running, tmp_path: Path) -> None:
    """Those whose newest certificate says so, by their content, however often each was played."""
    folder, record = tmp_path / "oracles", tmp_path / "certificates.jsonl"
    said = ["record", "edit.lines", "term.count", "--levels", "1-2", "--host", running.url]
    for _ in range(2):
        done = CliRunner().invoke(commands, [*said, "--out", str(folder)])
        assert done.exit_code == 0, done.output
    tasks = [FAMILIES[name].make(0, level).task for name in ("edit.lines", "term.count") for level in (1, 2)]
    verdicts = ["certified", "certified", "faulty"]
    record.write_text(
        "".join(
            json.dumps({"digest": task_digest(task), "image": "1f", "verdict": verdict}) + "\n"
            for task, verdict in zip(tasks, verdicts, strict=False)
        )
    )
    stats = ["data", "stats", str(folder), "--certificates", str(record)]
    assert re.search(r"certified_tasks +2 of 4", CliRunner().invoke(main, stats).output)
    assert json.loads(CliRunner().invoke(main, [*stats, "--json"]).output)["certified_tasks"] == "2 of 4"


def test_recorded_actions_are_such_as_models_have() -> None:
    """Each can be said in every grammar, but for the end, which the export says; nothing is lost."""
    for name in ("edit.lines", "term.count", "writer.replace"):
        for level in LEVELS:
            oracle = FAMILIES[name].make(0, level).ways.oracle
            steps, single = (plain_steps(oracle, single=one) for one in (False, True))
            assert [[action] for step in steps for action in step] == single
            for step in single[:-1]:
                for grammar in GRAMMARS:
                    render(placed(step, lambda target: (5, 5)), Context(SCREEN), grammar)
    steps = [
        [{"op": "type", "text": "ls", "press_enter": True}, {"op": "wait", "duration_ms": 9}, key("a")],
        DONE,
    ]
    assert plain_steps(steps, single=False) == [
        [{"op": "type", "text": "ls"}, key("enter")],
        [key("a")],
        DONE,
    ]


def test_the_card_counts_what_there_is() -> None:
    """Every family, none below the least of wordings; the readme names each in its table."""
    card = card_markdown()
    assert [row.family for row in counts()] == list(FAMILIES)
    assert all(row.wordings >= MIN_WORDINGS and row.near for row in counts())
    readme = Path("tasks/families/README.md").read_text()
    for family in FAMILIES.values():
        assert f"| `{family.name}` | {family.version} |" in card
        assert f"| `{family.name}` | " in readme, "a row of the table in tasks/families/README.md"
    assert f"| families | {len(FAMILIES)}, " in card
    named = re.findall(r"^\| `([\w.]+)` \| \d+ \|", Path("tasks/families/CARD.md").read_text(), re.M)
    assert {name for name in named if "." in name} <= set(FAMILIES), "write it anew: `osgym task family card`"
