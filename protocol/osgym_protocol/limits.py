"""Every bound and default of the two protocols."""

from __future__ import annotations

# Leases and episodes
DEFAULT_LEASE_TTL_S = 60.0
MIN_LEASE_TTL_S = 1.0
MAX_LEASE_TTL_S = 3600
"""Bound of a lease's time unless the host's settings have another; a longer time is cut to it."""
DEFAULT_WAIT_S = 60.0
"""Time for which a create waits for a replica."""
MAX_WAIT_S = 600
"""Bound of that wait unless the host's settings have another; a longer time is cut to it."""
DEFAULT_FORK_WAIT_S = 10.0
"""Time for which a fork waits for room for all of its children."""
MAX_CHILDREN = 64
"""Number of children of one fork."""
MAX_IMAGES = 64
"""Number of golden images of one host."""
MAX_CHECKPOINT_TTL_S = 10**9
DEFAULT_SUSPEND_S = 86400.0
"""Time for which the SDK lets a suspended episode be kept."""
MAX_DRAIN_S = 10**6
MAX_SEQ = 2**53
"""Largest number that JSON holds exactly everywhere."""
MAX_ID_CHARS = 128
"""Length of an episode's id, a lease, or a request's id."""

MIN_CLOCK_S = 1_577_836_800
"""Earliest time of a desktop's clock, 2020-01-01, in seconds since 1970."""
MAX_CLOCK_S = 4_102_444_800
"""First time that is too late for a desktop's clock, 2100-01-01."""

MAX_THINK_S = 3600
"""Bound of the time that a desktop is charged for one thought."""

# Bodies and records
MAX_BODY_BYTES = 16 * 1024 * 1024
"""Size of a request to the host."""
MAX_STEP_ACTIONS_BYTES = 1024 * 1024
"""Size of one step's actions in their canonical JSON, in UTF-8."""
MAX_STEP_BODY_BYTES = MAX_STEP_ACTIONS_BYTES + 64 * 1024
"""Size of a step's request to the guest: its actions, its number and its options."""
MAX_NOTE_CHARS = 20_000
"""Length of the note to a step: the words of a model."""
MAX_BATCH_STEPS = 4096
MAX_RENEWED_LEASES = 65536
MAX_META_BYTES = 4 * 1024 * 1024
"""Size of a record's meta. A step's is about 1 KB; the bound is for long action lists."""
MAX_GUEST_META_BYTES = 32 * 1024
MAX_GUEST_META_PARTS = 2048
"""Number of objects and lists in the meta of a guest's record, which is read between the steps of others.

256 results are as many objects and 10 KB.
"""
MAX_BLOB_BYTES = 64 * 1024 * 1024
"""Size of a record's blob. An uncompressed 4K frame is 33 MB."""
MAX_JSON_DEPTH = 100
"""Depth of a value without a type of its own (a task, an error's details); deeper overflows the stack."""

# Actions
MAX_ACTIONS = 256
"""Number of actions in one step."""
MAX_TEXT_CHARS = 100_000
"""Length of the text of one `type`, and of one action string."""
MAX_DURATION_MS = 60_000
"""Time of one `wait` or `hold`, of all of a step together, and of a settle."""
MAX_CLICK_COUNT = 10
MAX_KEY_REPEAT = 200
MAX_KEYS = 8
"""Number of keys in one chord, its modifiers included."""
MAX_SCROLL_CLICKS = 1000
PIXELS_PER_SCROLL_CLICK = 120
MAX_PATH_POINTS = 10_000
MAX_WHY_CHARS = 500
"""Length of the message of a refused action, which may cite the input."""

# Reach into a desktop
DEFAULT_COMMAND_S = 30.0
MAX_COMMAND_S = 600.0
MAX_COMMAND_WORDS = 4096
MAX_COMMAND_BYTES = 128 * 1024
"""Size of all words of a command together, and of the variables that override its environment."""
MAX_STDIN_BYTES = 4 * 1024 * 1024
MAX_OUTPUT_BYTES = 1024 * 1024
"""Size of each of the two outputs; the rest is dropped."""
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
"""Number of calls into one desktop at once, without steps and connections to ports."""
MAX_TUNNELS = 16
"""Number of open connections to ports of one desktop."""
MAX_REACH_EVENTS = 10_000
"""Number of events in one episode's trajectory; its end has the total."""
MAX_REACH_ARGUMENT_CHARS = 500

# Setup
MAX_SETUP_WARNINGS = 32
"""Number of warnings of one create; the rest is left out."""
MAX_WARNING_COMMAND_CHARS = 500
MAX_WARNING_STDERR_CHARS = 2000
"""Length of the end of a warning's standard error."""

# Settle
DEFAULT_SETTLE_MAX_MS = 5000.0
MAX_QUIET_MS = 1000
DEFAULT_FINAL_MS = 3000.0
"""Default wait of `final`."""

# Observe
MAX_SCREEN_SIDE_PX = 16384
MAX_IMAGE_SIDE_PX = 8192
DEFAULT_IMAGE_QUALITY = 85
MAX_IMAGE_QUALITY = 100
MAX_IMAGE_PIXELS = MAX_IMAGE_SIDE_PX**2
"""Number of pixels of one frame; a larger image is not decoded."""
MAX_SCREEN_PIXELS = 8192 * 4320
"""Number of pixels of one frame whose size was not asked for: 8K. A larger one is not passed on."""
MAX_BYTES_PER_PIXEL = 4
"""Bytes per pixel of an image file, `IMAGE_FILE_BYTES` aside; noise as PNG has a little over 3."""
IMAGE_FILE_BYTES = 64 * 1024
MAX_HASH_CHARS = 128
MAX_TIMINGS = 32
"""Number of named times in one answer."""

# Readiness
DEFAULT_READY_S = 30.0
MAX_READY_S = 600.0
