"""Setup steps, getters and scoring on a real replica, with tasks made for the purpose."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from tests.support.host_process import HostProcess

from osgym_guest.osworld.session import PROGRAM_FOLDERS
from osgym_sdk import AsyncClient, EpisodeEnded, Evaluation, SetupFailed, TaskError, TaskUnsupported

pytestmark = [pytest.mark.desktop, pytest.mark.timeout(120)]


def step(kind: str, **parameters: Any) -> dict[str, Any]:
    """A setup step."""
    return {"type": kind, "parameters": parameters}


def shell(command: str, **more: Any) -> dict[str, Any]:
    """A shell command as setup step."""
    return step("execute", command=command, shell=True, **more)


def rule(**rules: Any) -> dict[str, Any]:
    """An expected value."""
    return {"type": "rule", "rules": rules}


def output(command: str) -> dict[str, Any]:
    """What a command in the guest prints."""
    return {"type": "vm_command_line", "command": command, "shell": True}


def task(config: list[dict[str, Any]], **evaluator: Any) -> dict[str, Any]:
    """A task."""
    return {"id": "made", "instruction": "", "config": config, "evaluator": evaluator}


async def score(client: AsyncClient, made: dict[str, Any], last: str = "done") -> Evaluation:
    """Sets up, ends with one action, scores."""
    async with client.episode(made) as episode:
        await episode.step({"op": last})
        return await episode.evaluate()


async def test_files_commands_and_placeholders(client: AsyncClient) -> None:
    """Uploads arrive as they are; placeholders are filled; outputs are kept for the check only."""
    made = task(
        [
            step("upload_file", files=[{"path": "/home/user/a/ü.txt", "text": "héllo\n"}]),
            step("upload_file", files=[{"path": "~/b.bin", "data_base64": "AAEC"}]),
            step("command", command=["echo", "{SCREEN_WIDTH_HALF} {CLIENT_PASSWORD} {other}"], stdout="out"),
            shell("echo oops >&2", stderr="err"),
        ],
        func=["exact_match", "exact_match", "check_include_exclude", "check_include_exclude"],
        result=[
            output("cat ~/a/*.txt; od -An -tx1 ~/b.bin"),
            output("stat -c %U ~/a/*.txt"),
            {"type": "cache_file", "path": "out"},
            {"type": "cache_file", "path": "err"},
        ],
        expected=[
            rule(expected="héllo\n 00 01 02\n"),
            rule(expected="user\n"),
            rule(include=["960 password {other}"]),
            rule(include=["oops"]),
        ],
    )
    verdict = await score(client, made)
    assert verdict.reward == 1.0, verdict


async def test_until_repeats_a_command(client: AsyncClient) -> None:
    """A command with until runs again until its condition holds."""
    made = task(
        [step("execute", command="echo x >> ~/n; wc -l < ~/n", shell=True, until={"stdout": "3"})],
        func="exact_match",
        result=output("wc -l < ~/n"),
        expected=rule(expected="3\n"),
    )
    assert (await score(client, made)).reward == 1.0


async def test_windows_are_awaited_closed_and_listed(client: AsyncClient) -> None:
    """launch, the wait for its window, close_window, and the list of titles."""
    made = task(
        [
            step("launch", command=["galculator"]),
            step("launch", command=["mousepad"]),
            step(
                "execute_with_verification",
                command=["true"],
                verification={"window_exists": "galculator"},
                check_interval=0.1,
            ),
            step(
                "execute_with_verification",
                command=["true"],
                verification={"window_exists": "Mousepad"},
                check_interval=0.1,
            ),
            step("close_window", window_name="galculator"),
            step("activate_window", window_name="Mousepad"),
        ],
        func="check_window_titles",
        result={"type": "vm_window_titles"},
        expected=rule(include=["Mousepad$"], exclude=["galculator"]),
    )
    assert (await score(client, made)).reward == 1.0


async def test_or_stops_at_the_first_one(client: AsyncClient) -> None:
    """With or, one metric that earns 1 is enough; with and, one 0 decides."""
    results = [output("echo a"), output("echo b")]
    expected = [rule(expected="a\n"), rule(expected="other")]
    both = {"func": ["exact_match"] * 2, "result": results, "expected": expected}
    assert (await score(client, task([], **both, conj="or"))).reward == 1.0
    assert (await score(client, task([], **both, conj="and"))).reward == 0.0


async def test_checkpoints_earn_their_weights(client: AsyncClient) -> None:
    """All metrics run, also after one that earns 0; a condition that does not hold makes the reward 0."""
    held, missed = (output("echo a"), rule(expected="a\n")), (output("echo b"), rule(expected="other"))

    def made(*parts: tuple[Any, Any]) -> dict[str, Any]:
        results, expected = ([part[at] for part in parts] for at in (0, 1))
        both = {"func": ["exact_match"] * 3, "result": results, "expected": expected}
        return task([], **both, conj="partial", weights=[1, 3, 0])

    some = await score(client, made(missed, held, held))
    assert (some.reward, [detail["score"] for detail in some.details]) == (0.75, [0.0, 1.0, 1.0])
    none = await score(client, made(missed, held, missed))
    assert (none.reward, [detail["score"] for detail in none.details]) == (0.0, [0.0, 1.0, 0.0])


async def test_giving_up(client: AsyncClient) -> None:
    """FAIL is right only where nothing else is."""
    feasible = task([], func="exact_match", result=output("echo a"), expected=rule(expected="a\n"))
    assert (await score(client, feasible, "fail")).reward == 0.0
    assert (await score(client, task([], func="infeasible"), "fail")).reward == 1.0
    assert (await score(client, task([], func="infeasible"), "done")).reward == 0.0
    for last, printed, reward in (("fail", "a", 1.0), ("fail", "b", 0.0), ("done", "a", 0.0)):
        both = task(
            [],
            func=["infeasible", "exact_match"],
            result=[{}, output("printf a")],
            expected=[{}, rule(expected=printed)],
        )
        assert (await score(client, both, last)).reward == reward


@pytest.mark.parametrize(
    ("prepare", "note"),
    [
        ("true", "does not exist"),
        ("truncate -s 10G ~/r.docx", "is larger than"),
        ("head -c 5000 /dev/urandom > ~/r.docx", "not UTF-8|not a readable zip"),
        ("echo x > ~/r.docx; chmod 000 ~/r.docx", "Permission denied"),
        ("ln -s r.docx ~/r.docx", "symbolic links"),
        ("mkdir ~/r.docx", "not a regular file"),
        ("mkfifo ~/r.docx", "not a regular file"),
        ("ln -s /dev/zero ~/r.docx", "not a regular file"),
        ("touch ~/x; ln -s ~/x/y ~/r.docx", "does not exist"),
        (
            "python3 -c \"import zipfile; z = zipfile.ZipFile('/home/user/r.docx', 'w', 8);"
            "z.writestr('word/document.xml', bytes(80 << 20)); z.close()\"",
            "too large when unpacked",
        ),
    ],
)
async def test_hostile_results_score_0_with_the_reason(client: AsyncClient, prepare: str, note: str) -> None:
    """Missing, unreadable, huge, broken and exploding result files are wrong results."""
    made = task(
        [shell(prepare)],
        func="check_document_text",
        result={"type": "vm_file", "path": "/home/user/r.docx", "dest": "r.docx"},
        expected=rule(include=["x"]),
    )
    verdict = await score(client, made)
    assert verdict.reward == 0.0
    assert re.search(note, verdict.details[0]["note"])


async def test_a_result_that_changes_while_it_is_read_scores_0(client: AsyncClient) -> None:
    """A file that becomes shorter breaks the answer's connection; the desktop is not lost for that."""
    flicker = "while :; do truncate -s 0 ~/r.txt; truncate -s 60M ~/r.txt; done"
    made = task(
        [step("launch", command=["sh", "-c", flicker])],
        func="check_include_exclude",
        result={"type": "vm_file", "path": "/home/user/r.txt", "dest": "r.txt"},
        expected=rule(include=["x"]),
    )
    assert (await score(client, made)).reward == 0.0


@pytest.mark.parametrize("left", ["mkfifo ~/check.py", "mkdir ~/check.py", "ln -s /dev/full ~/check.py"])
async def test_what_lies_where_a_check_writes_scores_0_at_once(client: AsyncClient, left: str) -> None:
    """A postconfig step that writes where the policy left a pipe, folder or device is refused at once."""
    made = task(
        [shell(left)],
        postconfig=[step("upload_file", files=[{"path": "/home/user/check.py", "text": "print('no')"}])],
        func="exact_match",
        result=output("cat ~/check.py"),
        expected=rule(expected="never"),
    )
    async with client.episode(made) as episode:
        await episode.step({"op": "done"})
        async with asyncio.timeout(30):
            verdict = await episode.evaluate()
    assert verdict.reward == 0.0, verdict
    assert "postconfig[0]" in verdict.details[0]["note"]


FORGES_OUTPUT = """
import os, time
while True:
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if file.read() == b"sleep\\x000.72\\x00":
                    with open(f"/proc/{pid}/fd/1", "wb", buffering=0) as output:
                        output.write(b"forged")
        except OSError:
            pass
    time.sleep(0.002)
"""


async def test_a_checks_command_is_forged_by_no_program_of_the_user(client: AsyncClient) -> None:
    """Neither a program of that name in the user's folders, nor one that writes to its output, forges it."""
    forge = "mkdir -p ~/.local/bin; printf '#!/bin/sh\\necho forged\\n' > ~/.local/bin/cat"
    forge += "; chmod +x ~/.local/bin/cat"
    made = task(
        [
            step("upload_file", files=[{"path": "/home/user/forge.py", "text": FORGES_OUTPUT}]),
            step("launch", command=["python3", "/home/user/forge.py"]),
            shell(f"{forge}; echo true > ~/file"),
        ],
        func=["exact_match", "exact_match", "exact_match"],
        result=[
            {"type": "vm_command_line", "command": ["cat", "/home/user/file"]},
            {"type": "vm_command_line", "command": ["sleep", "0.72"]},
            {"type": "vm_command_line", "command": ["printenv", "PATH"]},
        ],
        expected=[rule(expected="true\n"), rule(expected=""), rule(expected=f"{PROGRAM_FOLDERS}\n")],
    )
    verdict = await score(client, made)
    assert verdict.reward == 1.0, verdict


async def test_a_command_that_cannot_start_scores_0(client: AsyncClient) -> None:
    """What a check runs inside is the policy's: it may have replaced or blocked it."""
    made = task([], func="exact_match", result=output("x"), expected=rule(expected="a"))
    made["evaluator"]["result"] = {"type": "vm_command_line", "command": ["not-there"]}
    verdict = await score(client, made)
    assert verdict.reward == 0.0
    assert "not-there" in verdict.details[0]["note"]


async def test_a_failed_check_is_no_reward(client: AsyncClient) -> None:
    """A metric that raises gives an error and no reward at all."""
    made = task([], func="check_list", result=output("echo a"), expected=rule(expect=["("]))
    verdict = await score(client, made)
    assert verdict.reward is None
    assert not verdict.valid_for_training
    assert verdict.failure is not None
    assert verdict.failure.code == "evaluator_error"


async def test_a_command_of_the_setup_that_fails_is_a_warning(client: AsyncClient) -> None:
    """By the SDK: the episode goes on with it, `strict_setup` refuses, a batch says so in its result."""
    made = task([shell("true"), shell("echo oops >&2; exit 7")], func="infeasible")
    async with client.episode(made) as episode:
        (warning,) = episode.setup_warnings
        assert (warning.step, warning.type, warning.exit_status) == (1, "execute", 7)
        assert (warning.what, warning.stderr) == ("echo oops >&2; exit 7", "oops\n")
        assert episode.trajectory.setup_warnings == (warning,)
        await episode.step({"op": "fail"})
        assert (await episode.evaluate()).reward == 1.0
        with pytest.raises(EpisodeEnded):
            await episode.step("click(1,1)")
    with pytest.raises(SetupFailed, match=r"config\[1\].*status 7"):
        await client.episode(made, strict_setup=True).start()
    results = [r async for r in client.run([made], lambda *_: "fail()", strict_setup=True)]
    assert [(r.reward, r.failure and r.failure.code, r.attempts) for r in results] == [
        (None, "setup_failed", 1)
    ]


async def test_wrong_tasks_are_refused_before_a_desktop_is_taken(
    client: AsyncClient, host: HostProcess
) -> None:
    """Malformed and unsupported tasks answer by field and by name, and take no replica."""
    leased = host.replicas("leased")
    with pytest.raises(TaskUnsupported) as unsupported:
        await client.episode(task([], func="compare_souls")).start()
    assert "compare_souls" in str(unsupported.value)
    with pytest.raises(TaskError) as invalid:
        await client.episode(task([step("execute")], func="infeasible")).start()
    assert "config[0].parameters.command" in str(invalid.value)
    assert host.replicas("leased") == leased


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (step("upload_file", files=[{"path": "x", "local_path": "/etc/passwd"}]), "folder for such files"),
        (step("download", files=[{"url": "http://127.0.0.1:1/x", "path": "x"}]), "not a public address"),
        (step("open", path="/home/user/not-there.txt"), "not-there|404|open"),
        (
            step(
                "execute_with_verification",
                command=["true"],
                verification={"window_exists": "no such window"},
                max_wait_time=0.5,
                check_interval=0.1,
            ),
            "verification",
        ),
    ],
)
async def test_setup_that_fails_says_which_step(
    client: AsyncClient, config: dict[str, Any], text: str
) -> None:
    """A setup step that cannot be done ends the create with the reason, and the replica is not reused."""
    with pytest.raises((SetupFailed, TaskError)) as caught:
        await client.episode(task([config], func="infeasible")).start()
    assert re.search(text, str(caught.value))


@pytest.mark.parametrize(
    ("command", "reward"),
    [
        ("true", 1.0),
        ("rm -r ~/work; mkdir ~/new; echo x > ~/new/a; echo x > ~/.cache/a", 1.0),
        ("rm ~/keep/a.txt", 0.0),
        ("echo other > ~/keep/a.txt", 0.0),
        ("chmod 600 ~/keep/a.txt", 0.0),
        ("rm -r ~/.config", 0.0),
        ("rmdir ~/Music", 0.0),
        ("find ~ -mindepth 1 -delete", 0.0),
        ("cd ~ && mv keep .kept && ln -s .kept keep", 0.0),
        ("echo 'raise SystemExit' > ~/json.py; rm ~/keep/a.txt", 0.0),
    ],
)
async def test_the_home_is_kept_but_for_what_may_change(
    client: AsyncClient, command: str, reward: float
) -> None:
    """The host's record is compared with the home at the end, whatever the policy's programs left there."""
    made = task(
        [
            step(
                "upload_file", files=[{"path": f"~/{name}/a.txt", "text": name} for name in ("keep", "work")]
            ),
            step("record_folder"),
        ],
        func="check_folder_kept",
        result={"type": "folder_record"},
        expected={"type": "cache_file", "path": "home"},
        options={"may_change": ["/home/user/work"]},
    )
    async with client.episode(made) as episode:
        await episode.execute(["bash", "-c", command])
        await episode.step({"op": "done"})
        verdict = await episode.evaluate()
    assert verdict.reward == reward, verdict


async def test_a_verifier_gets_the_files_that_exist(client: AsyncClient) -> None:
    """Each under its path; a missing file, a folder and a file without permission are left out."""
    verifier = (
        "def verify(files):\n    return {'score': files == {'/home/user/a': b'x'}, 'feedback': str(files)}\n"
    )
    paths = ["/home/user/a", "/home/user/gone", "/home/user", "/etc/shadow", "/dev/zero"]
    made = task(
        [step("upload_file", files=[{"path": "/home/user/a", "text": "x"}])],
        func="check_by_verifier",
        result={"type": "vm_files", "paths": paths},
        expected=rule(verifier=verifier, function="verify"),
    )
    verdict = await score(client, made)
    assert verdict.reward == 1.0, verdict
