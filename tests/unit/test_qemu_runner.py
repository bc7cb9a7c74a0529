"""The pure parts of running QEMU: users, hand-over, what a container is allowed, the image's recipe."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from osgym_host.runtimes.base import RuntimeUnsupported
from osgym_host.runtimes.cgroups import group_of
from osgym_host.runtimes.processes import cpu_s
from osgym_host.runtimes.replica_cgroup import Caps, CgroupGroup, MemoryEnd
from osgym_qemu.machine.launcher import LaunchRequest, memory_cap_mib
from osgym_qemu.runner import container_spec as spec
from osgym_qemu.runner import handover, output, users
from osgym_qemu.runner import runner_image as image
from osgym_qemu.runner.container import end_of
from osgym_qemu.runner.daemon import DockerDaemon

PLAN = spec.ContainerPlan("osgym-x", "v1", "image", 1234, Path("/run/x/v1"))


async def test_without_the_docker_sdk_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only this runner needs it, so osgym-qemu comes without it."""
    monkeypatch.setitem(sys.modules, "docker", None)
    daemon = DockerDaemon()
    with pytest.raises(RuntimeUnsupported, match=r"pip install 'osgym-qemu\[docker\]'"):
        await daemon.open()
    await daemon.close()


# Users -----------------------------------------------------------------------------------------------


def test_each_machine_has_a_user_of_its_own() -> None:
    """Ids are never shared, stay with their machine, and are used again when it is gone."""
    pool = users.UserPool("instance", count=3)
    taken = {name: pool.take(name) for name in ("a", "b", "c")}
    assert sorted(taken.values()) == [users.FIRST_ID, users.FIRST_ID + 1, users.FIRST_ID + 2]
    assert pool.take("b") == taken["b"]
    with pytest.raises(RuntimeError):
        pool.take("d")
    pool.release("b")
    pool.release("b")
    assert pool.take("d") == taken["b"]


def test_an_adopted_machines_user_is_not_given_to_another() -> None:
    """What a previous host agent handed out is noted; an id that is not ours to give is not."""
    pool = users.UserPool("instance", count=2)
    pool.claim("old", users.FIRST_ID + 1)
    pool.claim("root", 0)
    assert pool.take("new") == users.FIRST_ID
    assert pool.take("old") == users.FIRST_ID + 1


def test_giving_up_rights_keeps_the_process() -> None:
    """The program is executed in place, with nothing left to gain."""
    argv = users.as_user(["qemu", "-x"], 77, [5], setpriv="/usr/bin/setpriv")
    assert argv[0] == "/usr/bin/setpriv" and argv[-3:] == ["--", "qemu", "-x"]
    assert {"--reuid=77", "--regid=77", "--groups=5", "--bounding-set=-all", "--no-new-privs"} <= set(argv)
    assert "--clear-groups" in users.as_user(["qemu"], 77, setpriv="setpriv")


@pytest.mark.skipif(os.geteuid() != 0, reason="missing: root, who gives files away")
def test_frozen_layers_and_records_keep_their_owner(tmp_path: Path) -> None:
    """What has a second name elsewhere, or is private, is not the machine's to write."""
    folder, frozen = tmp_path / "vm", tmp_path / "frozen"
    folder.mkdir()
    frozen.write_text("shared")
    (folder / "overlay").write_text("own")
    (folder / "vm.json").write_text("secret")
    os.link(frozen, folder / "layer")
    (folder / "away").symlink_to(frozen)
    users.chown_folder(folder, users.FIRST_ID, {"vm.json"})
    owners = {entry.name: entry.stat(follow_symlinks=False).st_uid for entry in os.scandir(folder)}
    assert owners == {"overlay": users.FIRST_ID, "vm.json": 0, "layer": 0, "away": 0}
    assert (folder.stat().st_uid, folder.stat().st_mode & 0o777) == (users.FIRST_ID, 0o700)


def test_the_way_to_a_folder_is_opened_no_further_than_needed(tmp_path: Path) -> None:
    """Others may pass the folders on the way, not list them; the folder itself is not touched."""
    folder = tmp_path / "run" / "vms" / "v1"
    folder.mkdir(parents=True)
    for closed in (tmp_path / "run", tmp_path / "run" / "vms", folder):
        closed.chmod(0o700)
    assert users.untraversable_parent(folder) is not None
    users.make_traversable(folder, tmp_path / "run")
    modes = [path.stat().st_mode & 0o777 for path in (tmp_path / "run", tmp_path / "run" / "vms", folder)]
    assert modes == [0o711, 0o711, 0o700]
    with pytest.raises(ValueError):
        users.make_traversable(folder, tmp_path / "elsewhere")


# Requests and ends -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [{"name": "a/b"}, {"name": ""}, {"name": "a\n"}, {"argv": []}, {"fds": {2: 5}}],
)
def test_a_malformed_request_is_refused(change: dict[str, object]) -> None:
    """Names become containers' and groups'; the first three descriptors are the launcher's."""
    good = LaunchRequest("vm", ["qemu"], folder=Path("/run"))
    with pytest.raises(ValueError):
        replace(good, **change)


def test_a_machine_fits_under_its_cap() -> None:
    """The cap has room for guest RAM, translated code and QEMU itself."""
    assert memory_cap_mib(1024, 64) > 1024 + 64


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({"Running": False, "ExitCode": 0}, (0, None, MemoryEnd.NONE)),
        ({"Running": False, "ExitCode": 3}, (3, None, MemoryEnd.NONE)),
        ({"Running": False, "ExitCode": 137, "OOMKilled": True}, (None, 9, MemoryEnd.HOST)),
        ({"Running": False, "ExitCode": 139}, (None, 11, MemoryEnd.NONE)),
        ({"Running": True, "ExitCode": 0}, (None, None, MemoryEnd.NONE)),
        ({}, (None, None, MemoryEnd.NONE)),
    ],
)
def test_the_daemons_word_on_an_end(state: dict[str, object], expected: tuple[object, ...]) -> None:
    """Codes above 128 are signals; what is not known is not made up, such as whose memory ran out."""
    end = end_of(state, "said")
    assert (end.exit_code, end.signal, end.memory) == expected
    assert end.output == "said"


def test_the_kernels_word_on_memory_is_better_than_the_daemons() -> None:
    """The container daemon does not distinguish a machine at its cap from a host without memory."""
    state = {"Running": False, "ExitCode": 137, "OOMKilled": True}
    assert end_of(state, "", MemoryEnd.CAP).memory is MemoryEnd.CAP


def test_output_is_bounded_and_its_end_is_shown() -> None:
    """A writer cannot make the file grow; a reader sees what was written last."""
    fd = output.bounded_output()
    try:
        os.write(fd, b"a" * 1000 + b"the end")
        assert output.read_output(fd, 7) == "the end"
        with pytest.raises(OSError):
            os.ftruncate(fd, output.OUTPUT_BYTES + 1)
        os.lseek(fd, output.OUTPUT_BYTES, os.SEEK_SET)
        with pytest.raises(OSError):
            os.write(fd, b"more")
    finally:
        os.close(fd)


# Containers ------------------------------------------------------------------------------------------


def test_a_container_is_allowed_nothing() -> None:
    """No capability, network, shared memory, log, restart or writable place but its own folder."""
    body = spec.create_body(replace(PLAN, reads=(Path("/data/snapshot"),)))
    host = body["HostConfig"]
    assert (host["NetworkMode"], host["IpcMode"], host["CapDrop"]) == ("none", "none", ["ALL"])
    assert host["ReadonlyRootfs"] is True
    assert host["SecurityOpt"] == ["no-new-privileges:true"]
    assert not {"Privileged", "CapAdd", "Devices", "PortBindings", "Binds"} & set(host)
    assert body["User"] == "1234:1234"
    mounts = [(mount["Source"], mount["Target"], mount["ReadOnly"]) for mount in host["Mounts"]]
    assert mounts == [("/run/x/v1", "/run/x/v1", False), ("/data/snapshot", "/data/snapshot", True)]
    assert body["Labels"] == {"osgym.instance": "osgym-x", "osgym.vm": "v1"}


def test_kvm_is_passed_on_only_when_asked() -> None:
    """With its group, where not everybody may use it."""
    host = spec.create_body(replace(PLAN, kvm=True, kvm_group=104))["HostConfig"]
    assert [device["PathInContainer"] for device in host["Devices"]] == ["/dev/kvm"]
    assert host["GroupAdd"] == ["104"]


def test_caps_become_the_daemons() -> None:
    """Memory with no swap beyond it, processors and processes; none where there is no cap."""
    host = spec.create_body(replace(PLAN, caps=Caps(512, 1.5, 64)))["HostConfig"]
    assert (host["Memory"], host["MemorySwap"]) == (512 << 20, 512 << 20)
    assert (host["NanoCpus"], host["PidsLimit"]) == (1_500_000_000, 64)
    assert not {"Memory", "NanoCpus", "PidsLimit"} & set(spec.create_body(PLAN)["HostConfig"])


def test_the_recipe_follows_what_the_image_is_made_from() -> None:
    """Another entry or another QEMU on the host is another image; nothing else is."""
    one = image.recipe_digest(b"entry", "7.2")
    assert one == image.recipe_digest(b"entry", "7.2")
    assert len({one, image.recipe_digest(b"other", "7.2"), image.recipe_digest(b"entry", "8.0")}) == 3


def test_the_version_of_qemu_is_read() -> None:
    """From the first line that it prints; anything else is an error."""
    text = "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7)\nCopyright (c) 2003-2022 Fabrice Bellard"
    assert image.parse_version(text) == "7.2.22 (Debian 1:7.2+dfsg-7)"
    for wrong in ("", "sh: qemu: not found"):
        with pytest.raises(ValueError):
            image.parse_version(wrong)


def test_groups_of_others_are_never_a_containers() -> None:
    """Of a process's groups only those that bear the container's id are taken, so that no other is killed."""
    found = group_of(os.getpid(), "no-such-container")
    assert isinstance(found, CgroupGroup)
    assert found.pids() == set() and found.procs_files == []


# The hand-over ---------------------------------------------------------------------------------------


def entry() -> ModuleType:
    """The module that runs in the container."""
    made = importlib.util.spec_from_file_location("entry", Path(image.__file__).with_name("entry.py"))
    assert made is not None and made.loader is not None
    module = importlib.util.module_from_spec(made)
    made.loader.exec_module(module)
    return module


def handed(
    request: LaunchRequest, spoil: Callable[[bytes, bytes], tuple[bytes, bytes]] | None = None
) -> tuple:
    """What the entry reads of a request."""
    out = output.bounded_output()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        header, text, fds = handover.encode(request, {"PATH": "/bin"}, out)
        if spoil is not None:
            header, text = spoil(header, text)
        handover.send(ours, header, text, fds)
        ours.shutdown(socket.SHUT_WR)
        os.close(out)
        return tuple(entry().receive(theirs))


def test_both_ends_of_the_hand_over_agree() -> None:
    """The entry reads what the host wrote: words with blanks and line ends, variables, descriptors, port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        request = LaunchRequest(
            "vm",
            ["qemu", "-name", "a b\nü", "x=y"],
            folder=Path("/run"),
            fds={9: listener.fileno()},
            guest_listener=listener.fileno(),
            guest_port=5000,
            env={"A": "1=2"},
        )
        argv, env, numbers, fds, port = handed(request)
    for fd in fds:
        os.close(fd)
    assert argv == ["qemu", "-name", "a b\nü", "x=y"]
    assert env == {"PATH": "/bin", "A": "1=2"}
    assert (numbers, len(fds), port) == ([1, 2, 9], 4, 5000)


def test_without_a_listener_there_is_no_port() -> None:
    """Then no child stays behind."""
    *_, fds, port = handed(LaunchRequest("vm", ["qemu"], folder=Path("/run")))
    for fd in fds:
        os.close(fd)
    assert (len(fds), port) == (2, -1)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda header, text: (header, text[:-1]),
        lambda header, text: (header[:4] + b"\0\0\0\7" + header[8:], text),
        lambda header, text: (b"\xff" * 4 + header[4:], text),
        lambda header, text: (header[:5], b""),
    ],
)
def test_a_broken_hand_over_is_refused(spoil: Callable[[bytes, bytes], tuple[bytes, bytes]]) -> None:
    """A text that is cut, descriptors that are missing or a length beyond the bound are errors."""
    with pytest.raises(ValueError):
        handed(LaunchRequest("vm", ["qemu"], folder=Path("/run")), spoil)


def test_words_that_cannot_be_told_apart_are_refused() -> None:
    """An empty word or one with a NUL would shift all others."""
    for word in ("", "a\0b"):
        with pytest.raises(ValueError):
            handover.encode(LaunchRequest("vm", ["qemu", word], folder=Path("/run")), {}, 1)


_PLACE = """
import importlib.util, os, sys
made = importlib.util.spec_from_file_location("entry", sys.argv[1])
entry = importlib.util.module_from_spec(made)
made.loader.exec_module(entry)
pipes = {name: os.pipe() for name in "abc"}
wanted = {pipes["b"][1]: pipes["a"][1], pipes["a"][1]: pipes["b"][1], 40: pipes["c"][1]}  # a and b swapped
channel = os.open("/dev/null", os.O_WRONLY)
before = {number: os.fstat(fd).st_ino for number, fd in wanted.items()}
moved = entry.place(list(wanted), list(wanted.values()), channel)
after = {number: os.fstat(number).st_ino for number in wanted}
assert before == after, (before, after)
assert all(os.get_inheritable(number) for number in wanted) and not os.get_inheritable(moved)
left = []
for number in range(3, 300):
    try:
        os.fstat(number)
        left.append(number)
    except OSError:
        pass
assert left == sorted([*wanted, moved]), left
"""


def test_descriptors_are_placed_even_where_they_overlap() -> None:
    """Numbers that are wanted may be in use by others that are wanted elsewhere; the rest is closed."""
    path = Path(image.__file__).with_name("entry.py")
    subprocess.run([sys.executable, "-I", "-c", _PLACE, str(path)], check=True, timeout=30)


_FORWARD = """
import importlib.util, socket, sys
made = importlib.util.spec_from_file_location("entry", sys.argv[1])
entry = importlib.util.module_from_spec(made)
made.loader.exec_module(entry)
entry.Forwarder(socket.socket(fileno=int(sys.argv[2])), int(sys.argv[3])).run()
"""


@pytest.fixture
def forwarded() -> Iterator[tuple[int, socket.socket, int]]:
    """A port that is passed on, where it leads to, and the process that does it."""
    with socket.create_server(("127.0.0.1", 0)) as outer, socket.create_server(("127.0.0.1", 0)) as inner:
        inner.settimeout(10)
        path = Path(image.__file__).with_name("entry.py")
        fd, port = outer.fileno(), inner.getsockname()[1]
        argv = [sys.executable, "-I", "-c", _FORWARD, str(path), str(fd), str(port)]
        process = subprocess.Popen(argv, pass_fds=[fd])
        try:
            yield outer.getsockname()[1], inner, process.pid
        finally:
            process.kill()
            process.wait()


def received(end: socket.socket) -> bytes:
    """All that comes until the other end has said its last."""
    found = b""
    while more := end.recv(1 << 20):
        found += more
    return found


def test_a_forwarded_connection_is_whole_in_both_directions(
    forwarded: tuple[int, socket.socket, int],
) -> None:
    """Much data passes while nobody reads at first; each end may say its last and still listen."""
    port, inner, _ = forwarded
    flood = os.urandom(1 << 20) * 8
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        server, _ = inner.accept()
        with server, ThreadPoolExecutor(2) as pool:
            server.settimeout(10)
            sending = pool.submit(lambda: (client.sendall(flood), client.shutdown(socket.SHUT_WR)))
            answering = pool.submit(lambda: (server.sendall(flood[::-1]), server.shutdown(socket.SHUT_WR)))
            assert client.recv(1, socket.MSG_PEEK) and server.recv(1, socket.MSG_PEEK)
            assert received(server) == flood
            assert received(client) == flood[::-1]
            sending.result(), answering.result()


def test_the_forwarder_rests_and_bounds_its_connections(forwarded: tuple[int, socket.socket, int]) -> None:
    """Open, half closed and broken connections cost no time; beyond the bound they wait."""
    port, inner, pid = forwarded
    bound = entry().MAX_CONNECTIONS
    inner.listen(2 * bound)
    clients = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(bound + 5)]
    servers = [inner.accept()[0] for _ in range(bound)]
    inner.settimeout(0.3)
    with pytest.raises(TimeoutError):
        inner.accept()
    clients[0].shutdown(socket.SHUT_WR)
    servers[1].shutdown(socket.SHUT_WR)
    before = cpu_s([pid])
    time.sleep(0.5)
    assert cpu_s([pid]) - before < 0.2
    servers[2].close()
    clients[2].close()
    inner.settimeout(10)
    servers.append(inner.accept()[0])
    for end in (*clients, *servers):
        end.close()
