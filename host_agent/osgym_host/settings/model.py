"""Model of the settings: purpose, allowed values and default of each."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    InstanceOf,
    SecretStr,
    SerializeAsAny,
    model_validator,
)

from osgym_host.images.store import default_data_dir
from osgym_host.runtime_registry import RuntimeSetting
from osgym_host.settings.values import (
    HostName,
    IpNetwork,
    Port,
    Seconds,
    as_allowlist,
    as_list,
    as_notices,
    as_screen,
    as_switch,
    as_warm_apps,
    known_place,
)
from osgym_protocol.limits import MAX_IMAGES, MAX_LEASE_TTL_S, MAX_WAIT_S
from osgym_protocol.plugins import PluginGroup


class RuntimeSettings(BaseModel):
    """Settings of one runtime, below its name; a runtime that has any derives its own model."""

    model_config = ConfigDict(extra="forbid", frozen=True)


OwnSettings = TypeVar("OwnSettings", bound=RuntimeSettings)


class Settings(BaseModel):
    """The settings of one host agent. Its extra fields are the settings of runtimes, by their names."""

    model_config = ConfigDict(extra="allow", frozen=True)
    __pydantic_extra__: dict[str, SerializeAsAny[InstanceOf[RuntimeSettings]]] = Field(init=False)

    host: str = Field(
        default="127.0.0.1",
        description="Address to listen on. Off loopback it needs a token, a tokens_file or allowed_ips.",
    )
    ports: Annotated[list[Port], BeforeValidator(as_list)] = Field(
        default=[20000],
        min_length=1,
        description="Ports to listen on; the same service answers on all. 0 picks a free one.",
    )
    token: SecretStr | None = Field(
        default=None,
        description="Bearer token that every caller of the API v1 needs, or one of tokens_file.",
    )
    tokens_file: Path | None = Field(
        default=None,
        description="File of tokens with a scope (observe, run, admin), each with a name; `osgym token` "
        "writes it. It holds their SHA-256 only, and is read again when it changes.",
    )
    token_calls_per_s: float = Field(
        default=2000,
        ge=0,
        le=1_000_000,
        description="Calls a second per token of tokens_file in the long run; beyond that 429. 0: no bound.",
    )
    token_calls_burst: int = Field(
        default=4000,
        ge=1,
        le=1_000_000,
        description="Calls that each token of tokens_file may make at once after a rest.",
    )
    main_token_calls_per_s: float = Field(
        default=0,
        ge=0,
        le=1_000_000,
        description="Calls a second of all holders of `token` together, in the long run. 0: no bound.",
    )
    look_cpu_percent: float = Field(
        default=10,
        ge=0,
        le=100,
        description="Share of a processor, in percent, for calls of one `observe` token that only look; its"
        " calls for the host's state and metrics have as much again. Calls beyond the share wait up to a "
        "second, then get 429. Other tokens have five times the share. 0: no bound.",
    )
    wrong_tokens_per_min: int = Field(
        default=30,
        ge=0,
        le=100_000,
        description="Wrong tokens that one address (of IPv6 a /64) may show; beyond that 429, and only "
        "tokens that it has called with before are looked at. 0: no bound.",
    )
    allowed_ips: Annotated[list[IpNetwork], BeforeValidator(as_list)] = Field(
        default=[], description="Addresses and networks (CIDR) that may use the OSGym API without a token."
    )
    allowed_hosts: Annotated[list[HostName], BeforeValidator(as_list)] = Field(
        default=[],
        description="Names by which clients of allowed_ips may call this host. Its addresses, names without"
        " a dot, and names that end with .internal, .local or .localhost are always allowed.",
    )
    max_connections: int = Field(
        default=0,
        ge=0,
        le=1_000_000,
        description="Connections of clients at once. At the bound a waiting one is closed for a new one, "
        "else the new one is refused. 0: half of the files that the process may open, at most 16384.",
    )
    max_connections_per_address: int = Field(
        default=0,
        ge=0,
        le=1_000_000,
        description="Connections at once from one address (of IPv6 a /64). 0: 3/4 of max_connections.",
    )
    tls_cert: Path | None = Field(default=None, description="Certificate chain (PEM): serve HTTPS.")
    tls_key: Path | None = Field(default=None, description="Private key (PEM) of tls_cert.")
    data_dir: Path = Field(
        default_factory=default_data_dir,
        description="Folder of images, run state and trajectories. Default: /var/lib/osgym for root, "
        "~/.cache/osgym otherwise.",
    )
    instance: str = Field(
        default="default",
        pattern=r"^[A-Za-z0-9_-]{1,32}$",
        description="Name of this host agent below data_dir/run; two agents on one machine need two names.",
    )
    runtime: RuntimeSetting = Field(
        default="local",
        description="Runtime of the replicas, such as `local` (namespaces) or `qemu` (virtual machines).",
    )
    image: str = Field(
        default="full",
        description="Golden image: a flavor (full, small), the name of an import, or a prefix of a digest.",
    )
    images: Annotated[list[str], BeforeValidator(as_list)] = Field(
        default=[],
        max_length=MAX_IMAGES - 1,
        description="local: more golden images that this host serves beside `image`, which an episode gets "
        "that names none. All share `warm`, by recent demand, and `max_replicas`.",
    )
    warm_per_image_min: int = Field(
        default=1,
        ge=0,
        le=4096,
        description="With `images`: clean replicas of each image kept ready, whatever the demand, as far as "
        "`warm` is enough.",
    )
    calibrated_horizons: Literal["auto", "off"] = Field(
        default="auto",
        description="local: settle horizons. auto: those that `osgym settle calibrate` found for the image,"
        " if it was calibrated. off: the image's own.",
    )
    screen: Annotated[tuple[int, int], BeforeValidator(as_screen)] = Field(
        default=(1920, 1080),
        description="Size of the desktops in pixels. qemu: the snapshot's, whatever the default.",
    )
    network_links: str = Field(
        default="198.18.0.0/15",
        description="With egress: IPv4 network from which each replica's link gets two addresses; one that "
        "this host does not use otherwise.",
    )
    egress: Literal["none", "allowlist", "open"] = Field(
        default="none",
        description="Destinations of replicas. open: the internet, but not this host, private networks or "
        "a cloud's metadata; allowlist: those of egress_allow.",
    )
    egress_allow: Annotated[list[str], BeforeValidator(as_allowlist)] = Field(
        default=[],
        description="With egress allowlist: allowed IPv4 networks and host names; `*.example.org` stands "
        "for all names below.",
    )
    egress_by: Literal["auto", "link", "proxy"] = Field(
        default="auto",
        description="local: means of egress. link: a network of the replica's own with this host's rules "
        "(root), for every program; proxy: no network, and an HTTP proxy of this host for programs that use"
        " one. auto: link for root, proxy for others.",
    )
    web: Annotated[Literal["off", "record", "replay"], BeforeValidator(as_switch)] = Field(
        default="off",
        description="local: record: sites that replicas open (as far as egress lets them) are kept in "
        "web_archive, each answer once; replay: replicas have no network, and sites answer from there. "
        "Needs `osgym-host[web]`.",
    )
    web_archive: Path | None = Field(
        default=None,
        description="With web: HAR file that is recorded into or replayed; also one of a browser's.",
    )
    warm_apps: Annotated[list[str], BeforeValidator(as_warm_apps)] = Field(
        default=[],
        description="Programs that run in warm replicas, without a window, so that set-ups open them "
        "sooner: calc, writer, impress, chromium, the last also with options as tasks give them (`chromium "
        "--remote-debugging-port=1337`). One that a task does not use ends before its set-up. qemu: best in"
        " the snapshot (`osgym image snapshot --warm-apps`).",
    )
    warm_clones: Annotated[Literal["off", "on"], BeforeValidator(as_switch)] = Field(
        default="off",
        description="on: warm replicas are clones of the first one, in which the office suite of warm_apps "
        "runs; chromium cannot be cloned and is started in each. On local with criu 4.2 or newer, as root, "
        "egress none and web off.",
    )
    warm: int = Field(default=2, ge=0, le=4096, description="Clean replicas kept ready, ahead of demand.")
    max_replicas: int = Field(
        default=64, ge=1, le=4096, description="Replicas at once, whatever RAM would allow."
    )
    max_starting: int = Field(
        default=0,
        ge=0,
        le=256,
        description="Replicas that start at the same time. 0: as many as there are cores.",
    )
    rest: Literal["auto", "off", "pause", "reclaim"] = Field(
        default="auto",
        description="Rest of replicas that nobody uses: warm ones, and those whose policy thinks. pause: "
        "their processes stand still once they are idle; reclaim: their memory is moved to swap as well, "
        "as far as it is needed. The next call wakes them. auto: reclaim where this host has compressed "
        "swap (zram) and the runtime is local, else off.",
    )
    rest_after_s: float = Field(
        default=2,
        gt=0,
        le=3600,
        description="Time without a call after which an idle replica is paused.",
    )
    reclaim_after_s: float = Field(
        default=300,
        gt=0,
        le=86400,
        description="Time without a call after which the memory of a paused replica is moved to swap even if "
        "enough is free.",
    )
    rest_awake: int = Field(
        default=0,
        ge=0,
        le=4096,
        description="Number of replicas that can be awake at once: memory for them is kept free. 0: 16 for "
        "each core.",
    )
    replica_ram_mib: int = Field(
        default=2048,
        ge=64,
        description="Memory cap of a replica, and its estimate before any was measured. local: the "
        "desktop's programs may use 128 MiB less, or three quarters of a small cap. qemu: never less than "
        "the snapshot's RAM and what QEMU needs besides, since a smaller cap kills the machine.",
    )
    replica_cpus: float = Field(default=0.0, ge=0, description="CPU cap of a replica in cores. 0: none.")
    replica_cpu_burst_s: float = Field(
        default=4.0,
        ge=0,
        description="Core-seconds that a replica may use at full CPU weight beyond half a core. A replica "
        "that used them up has a low CPU weight until it rests. 0: no CPU weighting.",
    )
    replica_pids: int = Field(
        default=1024,
        ge=32,
        description="Cap on processes and threads of a replica (qemu: of QEMU itself).",
    )
    replica_disk_mib: int = Field(
        default=8192,
        ge=0,
        description="Cap on a replica's disk space. A replica above the cap is lost (qemu: one that tries "
        "to exceed it). 0: no bound.",
    )
    ram_reserve_mib: int = Field(default=1024, ge=0, description="Memory left to the rest of the host.")
    disk_reserve_mib: int = Field(
        default=1024,
        ge=0,
        description="Disk space left free. With less, no replica is made, and the running replica that "
        "wrote most ends.",
    )
    cpu_per_replica: float = Field(
        default=0.02,
        ge=0,
        description="Share of a core that admission counts for a replica. 0: CPU is not bounded.",
    )
    boot_timeout_s: Seconds = Field(default=60, description="Time from the clone's start to a drawn desktop.")
    lease_ttl_max_s: Seconds = Field(
        default=MAX_LEASE_TTL_S, description="Longest time to live a client may ask for."
    )
    wait_max_s: Seconds = Field(
        default=MAX_WAIT_S, description="Longest time a create may wait for a replica."
    )
    setup_timeout_s: Seconds = Field(default=300, description="Time for all setup steps of a task together.")
    evaluate_timeout_s: Seconds = Field(default=300, description="Time for the whole check of a task.")
    stop_timeout_s: Seconds = Field(default=30, description="Time from Ctrl-C to the end of the process.")
    osgym_max_steps: int = Field(default=100, ge=1, description="Steps of an episode on the OSGym API.")
    osgym_wait_s: Seconds = Field(
        default=120, description="Longest time that /reset of the OSGym API waits for a replica."
    )
    osgym_make_way_s: float = Field(
        default=10,
        ge=0,
        le=86400,
        description="Idle time after which a /reset of the OSGym API may end a VM of its port when no "
        "replica is free, the longest idle one first.",
    )
    trajectory: Literal["off", "steps", "frames"] = Field(
        default="steps", description="Recording on disk: nothing, steps as JSON lines, or frames too."
    )
    trajectory_max_mib: int = Field(
        default=2048, ge=1, description="Bound on all recorded trajectories; the oldest episodes go first."
    )
    trajectory_episode_max_mib: int = Field(
        default=256,
        ge=1,
        description="Bound on one recorded trajectory, at most half of trajectory_max_mib; further frames "
        "and long lines are left out.",
    )
    checkpoints_max_mib: int = Field(
        default=16384, ge=0, description="Bound on all checkpoints, kept or not, in RAM and on disk."
    )
    checkpoints_dir: Path | None = Field(
        default=None,
        description="local: folder of kept checkpoints and suspended episodes. On storage that hosts share "
        "(with owners of files and extended attributes) each can restore those of the others. Only hosts "
        "that trust one another may share it. Default: a folder of data_dir, for this host alone.",
    )
    branching: Annotated[Literal["off", "on"], BeforeValidator(as_switch)] = Field(
        default="off",
        description="on: episodes on local can be forked, saved as checkpoints and suspended; with "
        "criu 4.2 or newer, as root, egress none and web off. The host's criu then reads the memory of "
        "desktops that a policy has used, and root inside a desktop can reach its guest agent. qemu: always "
        "possible, without this setting.",
    )
    task_templates: Annotated[Literal["off", "on"], BeforeValidator(as_switch)] = Field(
        default="off",
        description="on: save the desktop right after a task's set-up, where the set-up is the same each "
        "time, and clone it for later episodes of the same set-up. On local with criu 4.2 or newer, as "
        "root. Root inside such a desktop can reach its guest agent.",
    )
    task_templates_max: int = Field(
        default=8,
        ge=1,
        le=1024,
        description="Bound on the number of task templates; the least recently used goes first.",
    )
    task_templates_max_mib: int = Field(
        default=4096,
        ge=1,
        description="Bound on all task templates, in RAM and on disk; the least recently used goes first.",
    )
    task_files_dir: Path | None = Field(
        default=None, description="Only folder from which tasks may upload files."
    )
    allow_downloads: bool = Field(
        default=True, description="Tasks may download files; false: from the cache only."
    )
    allow_private_addresses: bool = Field(
        default=False, description="Tasks may download from addresses that are not public."
    )
    notices: Annotated[
        str, BeforeValidator(as_notices), AfterValidator(known_place(PluginGroup.NOTICES, "off"))
    ] = Field(
        default="off",
        pattern=r"^(file:/.+|[a-z][a-z0-9-]{0,31})$",
        description="Source of notices that this host will be taken away. aws, gcp: the cloud's metadata "
        'service; file:/PATH: a file that appears in a folder that exists, empty or with `{"deadline": Unix'
        " time}`.",
    )
    metrics_to: Annotated[str, AfterValidator(known_place(PluginGroup.PUBLISHERS, "none"))] = Field(
        default="none",
        pattern=r"^(file:/.+|[a-z][a-z0-9-]{0,31}(:[a-z0-9-]+)?)$",
        description="Destination of `lease_pressure_percent` (leases held and waited for, per replica "
        "that may exist), for the scaling of a fleet. cloudwatch or cloudwatch:REGION needs "
        "`osgym-host[cloudwatch]`, gcp `osgym-host[gcp]`; file:/PATH: for `python -m osgym_host.scaling` "
        "beside the agent.",
    )
    metrics_fleet: str = Field(
        default="",
        pattern=r"^[A-Za-z0-9._-]{0,100}$",
        description="With metrics_to: name of the fleet, published as a dimension or label `fleet`.",
    )
    metrics_every_s: float = Field(
        default=60, ge=5, le=3600, description="Interval at which lease_pressure_percent is published."
    )
    drain_margin_s: float = Field(
        default=5,
        ge=0,
        le=3600,
        description="Time between the end of open episodes and the deadline of the host.",
    )
    usd_per_hour: float = Field(
        default=0,
        ge=0,
        le=10_000,
        description="Price of this machine, from which the cost of a scored episode is shown. 0: unknown.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Lowest level of the logged records."
    )
    log_format: Literal["text", "json"] = Field(
        default="text",
        description="Format of the log on stderr: lines for people, or JSON with one object in each line.",
    )

    def of_runtime(self, name: str, model: type[OwnSettings]) -> OwnSettings:
        """Return the settings of a runtime, its defaults where none were given."""
        own = self.__pydantic_extra__.get(name)
        return own if isinstance(own, model) else model()

    @model_validator(mode="after")
    def _check(self) -> Settings:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key must be set together")
        if not self.metrics_to.startswith(("none", "file:")) and not self.metrics_fleet:
            raise ValueError(f"metrics_to {self.metrics_to} needs metrics_fleet, the name of the fleet")
        if not self.is_loopback and self.token is None and self.tokens_file is None and not self.allowed_ips:
            raise ValueError(
                f"refusing to listen on {self.host}: anyone could use these desktops. Set a token "
                "(OSGYM_TOKEN, or OSGYM_TOKENS_FILE: tokens with a scope), or for the OSGym API the "
                "addresses of its clients (OSGYM_ALLOWED_IPS=10.0.0.5,10.1.0.0/16), or listen on 127.0.0.1"
            )
        self._check_web()
        self._check_clones()
        return self

    def _check_clones(self) -> None:
        """Refuse to clone desktops that may have connections."""
        if self.egress == "none" and self.web == "off":
            return
        if self.warm_clones == "on":
            raise ValueError("warm_clones=on needs egress=none and web=off: connections cannot be cloned")
        if self.branching == "on":
            raise ValueError("branching=on needs egress=none and web=off: connections cannot be cloned")

    def _check_web(self) -> None:
        if self.web == "off":
            return
        if self.web_archive is None:
            raise ValueError(f"web={self.web} needs the setting web_archive, a HAR file")
        if self.egress_by == "link":
            raise ValueError(f"web={self.web} uses the proxy: leave egress_by at auto")
        if self.web == "record" and self.egress == "none":
            raise ValueError("web=record needs egress=allowlist or open, which says what may be recorded")
        if self.web == "replay" and self.egress != "none":
            raise ValueError("web=replay gives replicas no network: leave egress at none")

    @property
    def is_loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False
