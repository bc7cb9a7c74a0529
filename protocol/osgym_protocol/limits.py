"""Every bound and default of the two protocols. Nothing else says them a second time."""

from __future__ import annotations

# Leases and episodes
DEFAULT_LEASE_TTL_S = 60.0
MIN_LEASE_TTL_S = 1.0
MAX_LEASE_TTL_S = 3600
"""What a host allows unless its settings say otherwise; a longer time is cut to it."""
DEFAULT_WAIT_S = 60.0
"""How long a create waits for a replica."""
MAX_WAIT_S = 600
"""What a host allows unless its settings say otherwise; a longer time is cut to it."""
DEFAULT_FORK_WAIT_S = 10.0
"""How long a fork waits for room for all of its children."""
MAX_CHILDREN = 64
"""Of one fork."""
MAX_CHECKPOINT_TTL_S = 10**9
MAX_DRAIN_S = 10**6
MAX_SEQ = 2**53
"""What JSON numbers hold exactly everywhere."""
MAX_ID_CHARS = 128
"""Of an episode's id, a lease, a request's id."""

MIN_CLOCK_S = 1_577_836_800
"""2020-01-01: the earliest time that a desktop's clock is set to, in seconds since 1970."""
MAX_CLOCK_S = 4_102_444_800
"""2100-01-01, which is too late."""

# Bodies and records
MAX_BODY_BYTES = 16 * 1024 * 1024
"""Of a request to the host."""
MAX_STEP_ACTIONS_BYTES = 1024 * 1024
"""Of one step's actions in their canonical JSON, in UTF-8."""
MAX_STEP_BODY_BYTES = MAX_STEP_ACTIONS_BYTES + 64 * 1024
"""Of a step's request to the guest: its actions, its number and its options."""
MAX_NOTE_CHARS = 20_000
"""Of what is told of a step to be kept beside it: the words of a model."""
MAX_BATCH_STEPS = 4096
MAX_RENEWED_LEASES = 65536
MAX_META_BYTES = 4 * 1024 * 1024
"""Of a record. A step's meta is about 1 KB; the bound is for long action lists."""
MAX_GUEST_META_BYTES = 32 * 1024
MAX_GUEST_META_PARTS = 2048
"""Of a record that a guest sends: bytes, and objects and lists. It is read between the steps of others; 256
results take 10 KB and as many objects."""
MAX_BLOB_BYTES = 64 * 1024 * 1024
"""Of a record. An uncompressed 4K frame is 33 MB."""
MAX_JSON_DEPTH = 100
"""Of what has no type of its own (a task, an error's details): deeper ends in the interpreter's stack."""

# Actions
MAX_ACTIONS = 256
"""Of one step."""
MAX_TEXT_CHARS = 100_000
"""Of one `type`, and of one action string."""
MAX_DURATION_MS = 60_000
"""Of one `wait` or `hold`, of all of a step together, and of a settle."""
MAX_CLICK_COUNT = 10
MAX_KEY_REPEAT = 200
MAX_KEYS = 8
"""Of one chord, its modifiers included."""
MAX_SCROLL_CLICKS = 1000
PIXELS_PER_SCROLL_CLICK = 120
MAX_PATH_POINTS = 10_000
MAX_WHY_CHARS = 500
"""Of the message of a refused action, which may cite what was given."""

# Reach into a desktop
DEFAULT_COMMAND_S = 30.0
MAX_COMMAND_S = 600.0
MAX_COMMAND_WORDS = 4096
MAX_COMMAND_BYTES = 128 * 1024
"""Of all words of a command together, and of what is laid over its environment."""
MAX_STDIN_BYTES = 4 * 1024 * 1024
MAX_OUTPUT_BYTES = 1024 * 1024
"""Of each of the two outputs; what follows is thrown away."""
DEFAULT_READ_BYTES = 16 * 1024 * 1024
MAX_READ_BYTES = MAX_BLOB_BYTES
MAX_WRITE_BYTES = MAX_BODY_BYTES
MAX_PATH_CHARS = 4096
DEFAULT_A11Y_S = 6.0
MAX_A11Y_S = 40.0
DEFAULT_A11Y_NODES = 2000
DEFAULT_A11Y_BYTES = 2 * 1024 * 1024
MAX_A11Y_BYTES = 16 * 1024 * 1024
MAX_WINDOWS = 64
DEFAULT_RECORD_S = 300.0
MAX_RECORD_S = 3600.0
DEFAULT_FRAMES_PER_S = 10
MAX_FRAMES_PER_S = 30
MAX_REACHES_AT_ONCE = 8
"""Calls into one desktop, steps aside. Connections to a port are apart."""
MAX_TUNNELS = 16
"""Open connections to ports of one desktop."""
MAX_REACH_EVENTS = 10_000
"""Of one episode's trajectory; how many there were is said at its end."""
MAX_REACH_ARGUMENT_CHARS = 500

# Setup
MAX_SETUP_WARNINGS = 32
"""Of one create; what follows is left out."""
MAX_WARNING_COMMAND_CHARS = 500
MAX_WARNING_STDERR_CHARS = 2000
"""The end of it."""

# Settle
DEFAULT_SETTLE_MAX_MS = 5000.0
MAX_QUIET_MS = 1000
DEFAULT_FINAL_MS = 3000.0
"""How long `final` waits when it is not said."""

# Observe
MAX_SCREEN_SIDE_PX = 16384
MAX_IMAGE_SIDE_PX = 8192
DEFAULT_IMAGE_QUALITY = 85
MAX_IMAGE_QUALITY = 100
MAX_IMAGE_PIXELS = MAX_IMAGE_SIDE_PX**2
"""Of one frame. What claims to be larger is not decoded."""
MAX_SCREEN_PIXELS = 8192 * 4320
"""Of one frame whose size was not asked for: 8K. What claims to be larger is not passed on."""
MAX_BYTES_PER_PIXEL = 4
"""An image file has no more for each pixel, `IMAGE_FILE_BYTES` aside; noise as PNG has a little over 3."""
IMAGE_FILE_BYTES = 64 * 1024
MAX_HASH_CHARS = 128
MAX_TIMINGS = 32
"""Named times of one answer."""

# Readiness
DEFAULT_READY_S = 30.0
MAX_READY_S = 600.0
