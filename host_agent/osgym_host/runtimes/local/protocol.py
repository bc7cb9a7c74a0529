"""Messages between the host agent and its zygote, as `packets`. Standard library only.

Requests: `{"id", "op"}` with
- `spawn`: `key`, `rootfs`, `folder` (absolute paths), `uid_base`, `gid_base` (the replica's ids, as the
  zygote numbers them), `image_uid_base`, `image_gid_base` (the owners of the image's files; when they
  are others than the replica's, it gets the image by an id-mapped mount), `hostname`, `environment`,
  `limits`, `counts` (see `outer`), `cgroup_procs` and `session_procs` (files that move a process into the
  replica's control groups, and into those of its session), `name_server` (an address; empty: the replica
  gets no network but loopback), `files` (path, text and mode of each that is written inside), `proxy_port`
  (0: no proxy); descriptors: console log, and with a proxy the end of a socket pair to which a socket is
  sent that listens at that port of the replica's loopback interface.
  With `restore` a clone of a branch point: `criu` (the program), `images` (folder), `console`, `listening`
  (names in the image, see `criu.commands`); its folder has its `upper` already.
- `kill`: `key`. Succeeds also when there is no such process.
- `remove`: `names` below the directory given as descriptor.
- `measure`: `name` below such a directory, `pids` of the replica, and `devices` that count as disk; the
  answer's `result` is `BYTES DELETED_BYTES FDS_IN_FLIGHT WRITTEN_BYTES`, the last -1 where nobody counts.

- `identify`: `pids` of a replica, `listening` (inode of its agent's socket); `result` is what `agent_check`
  knows of the agent, as JSON.
- `check`: that as `before`, `pids`, `listening`, `connections` (inodes of the agent's ends), `rootfs`,
  `upper`; `result` says what of the agent is not what it was, empty when nothing is.

Answers: `{"id", "ok": true, …}` or `{"id", "ok": false, "step", "error"}`; the answer to `spawn` has
`pid`, `listening` (inode of its agent's socket), `own_devices` (its device nodes are no other's), a pidfd,
and with a name server its network namespace.
Besides, unasked:
`{"event": "exit", "key", "status"}`, `status` as of `waitpid`, once for each replica whose `spawn`
succeeded.
"""

from __future__ import annotations

MAX_PIDS = 4000
"""Largest number of processes in one `measure` request: as many as fit into a packet."""
SESSION = "/usr/lib/osgym/session"
LISTEN_FD = 3
SESSION_GROUPS_FD = LISTEN_FD + 1
"""First descriptor by which `osgym-session` joins the session's control groups."""
SESSION_GROUPS = "OSGYM_SESSION_GROUPS"
"""Environment variable with the number of these descriptors."""
ID_COUNT = 65536
"""Number of ids of a replica, and of an image."""
