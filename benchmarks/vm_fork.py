"""Branching a desktop in the middle of its work: the parent's pause, and the children's first answers.

    python -m benchmarks.vm_fork                                   # Calc in the full image, emulated
    python -m benchmarks.vm_fork --image small --snapshot desktop  # an editor in the small one
    python -m benchmarks.vm_fork --accel kvm                       # on a host with KVM and such a snapshot

Measured by a client of the service: from the call of `fork` until it returns (every child has answered with
its new identity), and until each child's first frame is there. The text that was typed is in no file when the
desktop is branched; each child types on, saves, and the file is read inside it. Then a line of children of
children, and a checkpoint that outlives QEMU and the host agent (kill -9), both restored by the next one. Run
it as root on the machine itself, with nothing else on it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import time
from typing import Any

from PIL import ImageChops

from benchmarks.common import quantile, save, summary
from benchmarks.vm_common import Service, described, options, vm_service
from benchmarks.vm_sessions import Session, session_of
from osgym_sdk import AsyncClient, AsyncEpisode, AsyncObservation

TEXT, MORE = "never saved", "o"
"""Texts that an office suite's automatic correction does not change."""
STOCK_WAIT_S = 120.0
QUIET_S = 2.0
"""Pause between rounds, after which the last round's remaining work is done."""


async def stocked(service: Service, count: int) -> None:
    """Wait until so many processes are parked, and a moment more."""
    end = time.monotonic() + STOCK_WAIT_S
    while service.parked() < count and time.monotonic() < end:  # noqa: ASYNC110  # it is in another process
        await asyncio.sleep(0.1)
    await asyncio.sleep(QUIET_S)


def pause_ms(service: Service, parent: AsyncEpisode, after: int) -> float:
    """Return the pause of a parent that was forked after an event."""
    forks = [event for event in service.events(after) if event["kind"] == "fork"]
    (mine,) = [event for event in forks if event["episode_id"] == parent.episode_id]
    return float(mine["pause_ms"])


def differing_share(one: AsyncObservation, other: AsyncObservation) -> float:
    """Return the share of two frames' pixels that differ: a caret and a clock do."""
    difference = ImageChops.difference(one.image.convert("RGB"), other.image.convert("RGB")).convert("L")
    return 1.0 - difference.histogram()[0] / (difference.width * difference.height)


async def timed_fork(
    service: Service, parent: AsyncEpisode, count: int
) -> tuple[list[AsyncEpisode], dict[str, Any]]:
    """Fork once; return the children and the times."""
    await stocked(service, count)
    before = await parent.observe()
    held, last = service.agent(), service.last_event()
    began = time.monotonic()
    children = await parent.fork(count, wait_s=60)
    returned = time.monotonic()

    async def first_frame(child: AsyncEpisode) -> tuple[float, AsyncObservation]:
        frame = await child.observe()
        return 1000 * (time.monotonic() - began), frame

    firsts = await asyncio.gather(*map(first_frame, children))
    row = {
        "children": count,
        "pause_ms": pause_ms(service, parent, last),
        "fork_ms": 1000 * (returned - began),
        "first_frame_ms": [ms for ms, _ in firsts],
        "screen_differs": max(differing_share(before, frame) for _, frame in firsts),
        "pss_mib": [service.pss_mib(child.replica_id) for child in children],
        "parent_pss_mib": service.pss_mib(parent.replica_id),
        "agent_before": held,
        "agent_after": service.agent(),
    }
    return children, row


async def close_all(episodes: list[AsyncEpisode]) -> None:
    await asyncio.gather(*(episode.aclose() for episode in episodes))


async def rounds(service: Service, parent: AsyncEpisode, count: int, times: int) -> list[dict[str, Any]]:
    """Fork several times, while the parent works on in between."""
    rows = []
    for number in range(times):
        await parent.step({"op": "type", "text": MORE})
        children, row = await timed_fork(service, parent, count)
        rows.append(row)
        print(
            f"  {count:2d} children, round {number + 1}: pause {row['pause_ms']:.1f} ms, all answered "
            f"{row['fork_ms']:.0f} ms, first frames {min(row['first_frame_ms']):.0f} to "
            f"{max(row['first_frame_ms']):.0f} ms, PSS {summary(row['pss_mib'])['median']:.0f} MiB",
            flush=True,
        )
        await close_all(children)
    return rows


async def diverge(service: Service, session: Session, parent: AsyncEpisode, text: str) -> dict[str, Any]:
    """Let four children type on, each its own; return the final texts of each and of the parent."""
    children, _row = await timed_fork(service, parent, 4)
    await asyncio.gather(*(session.type(child, f" child {n}") for n, child in enumerate(children)))
    pss = [service.pss_mib(child.replica_id) for child in children]
    found = await asyncio.gather(*(session.saved_text(service, child) for child in children))
    screens = {(await child.observe()).hash for child in children}
    await close_all(children)
    wanted = [f"{text} child {n}" for n in range(4)]
    result = {
        "wanted": wanted,
        "found": list(found),
        "screens": len(screens),
        "pss_after_typing_mib": pss,
        "proved": list(found) == wanted and len(screens) == 4,
    }
    print(
        f"  unsaved text in every child, apart from then on: {result['proved']} {found}, "
        f"{len(screens)} different screens",
        flush=True,
    )
    return result


async def descend(
    service: Service, session: Session, parent: AsyncEpisode, text: str, depth: int
) -> dict[str, Any]:
    """Make children of children; the last one saves what all of them typed."""
    line: list[AsyncEpisode] = []
    rows = []
    for number in range(depth):
        (child,), row = await timed_fork(service, line[-1] if line else parent, 1)
        line.append(child)
        rows.append(row)
        await session.type(child, f" {number}")
    found = await session.saved_text(service, line[-1])
    wanted = text + "".join(f" {number}" for number in range(depth))
    await close_all(line)
    told = ", ".join(f"{row['pause_ms']:.1f} / {row['fork_ms']:.0f}" for row in rows)
    print(f"  depth {depth}: {found == wanted} {found!r}; pause / answered ms: {told}", flush=True)
    return {"rows": rows, "wanted": wanted, "found": found, "proved": found == wanted}


async def kept(client: AsyncClient, service: Service, parent: AsyncEpisode) -> dict[str, Any]:
    """Take a checkpoint, then kill every machine and the host agent."""
    began = time.monotonic()
    checkpoint = await parent.checkpoint(keep=True)
    took_s = time.monotonic() - began
    pids = [record.pid for record in service.records() if record.pid is not None]
    os.kill(service.pid, signal.SIGKILL)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    info = checkpoint.info
    return {
        "checkpoint_id": info.checkpoint_id,
        "took_s": took_s,
        "pause_ms": info.pause_ms,
        "ram_mib": info.ram_mib,
        "disk_mib": info.disk_mib,
        "killed": len(pids) + 1,
    }


async def restore(service: Service, session: Session, checkpoint_id: str, text: str) -> dict[str, Any]:
    """Restore on the next host agent, type on, and read the text."""
    async with AsyncClient(service.url) as client:
        await stocked(service, 1)
        began = time.monotonic()
        episode = await client.restore(checkpoint_id)
        async with episode:
            await episode.observe()
            restored_s = time.monotonic() - began
            await session.type(episode, " restored")
            found = await session.saved_text(service, episode)
        (checkpoint,) = [c for c in await client.checkpoints() if c.checkpoint_id == checkpoint_id]
        await checkpoint.delete()
    proved = found == f"{text} restored"
    print(f"  restored after kill -9 of everything in {restored_s:.2f} s: {proved} {found!r}", flush=True)
    return {"restored_s": restored_s, "found": found, "proved": proved}


async def work(service: Service, args: argparse.Namespace, native: str) -> dict[str, Any]:
    """Run everything on one host agent, which is dead at the end."""
    session = session_of(args.image, args.snapshot)
    times = 2 if args.quick else args.rounds
    result: dict[str, Any] = {"native": native, "session": session.name}
    async with AsyncClient(service.url) as client:
        parent = client.episode(session.begin_with(), wait_s=300)
        await parent.start()
        await session.begin(parent, TEXT)
        text = TEXT
        for count in args.children:
            few = times if count <= 4 else max(2, times // 2)
            result[f"rounds_{count}"] = await rounds(service, parent, count, few)
            text += MORE * few
        result["diverge"] = await diverge(service, session, parent, text)
        result["depth"] = await descend(service, session, parent, text, 3 if args.quick else 5)
        result["kept"] = await kept(client, service, parent)
    result["text"] = text
    return result


def run(args: argparse.Namespace, native: str) -> dict[str, Any]:
    """Run one variant: a host agent that is killed, and the next one."""
    most = max(args.children)
    settings = {
        "warm": 1,
        "qemu.parked": most,
        "max_replicas": most + 8,
        "cpu_per_replica": 0,
        "qemu.fork_native": native,
    }
    session = session_of(args.image, args.snapshot)
    print(f"fork_native={native}, {session.name}")
    with vm_service(args, settings) as service:
        result = asyncio.run(work(service, args, native))
        with vm_service(args, {**settings, "instance": service.instance}) as again:
            restored = restore(again, session, result["kept"]["checkpoint_id"], result["text"])
            result["restored"] = asyncio.run(restored)
    return result


def report(result: dict[str, Any], children: list[int]) -> None:
    """Print the figures of one variant against the targets."""
    for count in children:
        rows = result[f"rounds_{count}"]
        pauses = [row["pause_ms"] for row in rows]
        forks = [row["fork_ms"] for row in rows]
        frames = [max(row["first_frame_ms"]) for row in rows]
        pss = [value for row in rows for value in row["pss_mib"]]
        print(
            f"fork_native={result['native']}, {count} children, {len(rows)} times: pause median "
            f"{quantile(pauses, 0.5):.1f} ms (p95 {quantile(pauses, 0.95):.1f}); all answered median "
            f"{quantile(forks, 0.5):.0f} ms; last first frame median {quantile(frames, 0.5):.0f} ms; "
            f"PSS median {quantile(pss, 0.5):.0f} MiB per child"
        )


def main() -> int:
    parser = options(__doc__, image="full", snapshot="calc-open")
    parser.add_argument("--children", type=int, nargs="+", default=[4, 16], help="ways of the forks (4 16)")
    parser.add_argument("--rounds", type=int, default=10, help="how often (10; half for more than 4)")
    parser.add_argument(
        "--native",
        choices=["auto", "off", "both"],
        default="both",
        help="with the library in QEMU or without",
    )
    args = parser.parse_args()
    about = described(args)
    print(about)
    variants = ["auto", "off"] if args.native == "both" else [args.native]
    results = [run(args, native) for native in variants]
    for result in results:
        report(result, args.children)
    proved = all(r[part]["proved"] for r in results for part in ("diverge", "depth", "restored"))
    where = save("vm_fork", {"machine": about, "variants": results, "proved": proved}, args.out)
    print(f"everything proved: {proved}; raw series in {where}")
    return 0 if proved else 1


if __name__ == "__main__":
    raise SystemExit(main())
