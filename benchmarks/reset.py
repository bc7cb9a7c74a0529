"""Reset from a warm pool: from asking for an episode to the first frame of a clean desktop.

python -m benchmarks.reset --image full --resets 30
"""

from __future__ import annotations

import time

from benchmarks.common import argument_parser, local_service, machine, save, summary
from osgym_sdk import Client, HostState


def _wait_ready(client: Client, count: int, timeout_s: float = 60.0) -> None:
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        state = next(iter(client.host_states().values()))
        if isinstance(state, HostState) and state.capacity.ready >= count:
            return
        time.sleep(0.1)
    raise TimeoutError(f"{count} desktops were not ready within {timeout_s} s")


def main() -> None:
    parser = argument_parser(__doc__, image="full")
    parser.add_argument("--resets", type=int, default=30, help="how many (30)")
    args = parser.parse_args()
    series: list[float] = []
    with local_service(args.image, {"warm": 2}) as (url, _), Client(url) as client:
        for _ in range(args.resets):
            _wait_ready(client, 2)
            began = time.monotonic()
            with client.episode() as episode:
                assert len(episode.observation.png) > 0
                series.append((time.monotonic() - began) * 1000)
    print(f"{machine()}\nreset_ms {summary(series)}\n{[round(ms, 1) for ms in series]}")
    print(f"saved {save('reset', {'machine': machine(), 'image': args.image, 'reset_ms': series}, args.out)}")


if __name__ == "__main__":
    main()
