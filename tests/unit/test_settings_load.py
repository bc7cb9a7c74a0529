"""Settings: sources, unknown keys, what is refused, and that the documentation is true."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from osgym_host.settings import Settings, SettingsError, load, table
from osgym_qemu.kind import QemuSettings

ROOT = Path(__file__).parents[2]


def test_the_later_source_wins(tmp_path: Path) -> None:
    """File over default, environment over file, command line over environment."""
    file = tmp_path / "config.yaml"
    file.write_text("warm: 3\nmax_replicas: 9\nports: [1, 2]\n")
    settings = load(
        file, {"OSGYM_WARM": "4", "OSGYM_MAX_REPLICAS": "10", "HOME": "/"}, {"warm": 5, "image": None}
    )
    assert (settings.warm, settings.max_replicas, settings.ports) == (5, 10, [1, 2])


@pytest.mark.parametrize(
    ("file", "environment", "flags", "said"),
    [
        ("wram: 3\n", {}, {}, "unknown setting wram; did you mean warm?"),
        (
            None,
            {"OSGYM_MAX_REPLICA": "3"},
            {},
            "unknown setting OSGYM_MAX_REPLICA; did you mean max_replicas",
        ),
        (None, {}, {"prots": "1"}, "did you mean ports"),
        (None, {"OSGYM_WARM": "many"}, {}, "warm: "),
        ("- a\n", {}, {}, "key: value"),
        ("a: [\n", {}, {}, "cannot read"),
        (None, {}, {"tls_cert": "x"}, "must be set together"),
        (None, {}, {"host": "0.0.0.0"}, "refusing to listen on 0.0.0.0"),
        (None, {}, {"allowed_ips": "10.0.0.300"}, "allowed_ips"),
        (None, {}, {"notices": "azure"}, "notices"),
        ("notices: true\n", {}, {}, "notices"),
        ("qemu:\n  parkd: 3\n", {}, {}, "unknown setting qemu.parkd; did you mean qemu.parked"),
        ("qemu: 3\n", {}, {}, "unknown setting qemu "),
        (None, {"OSGYM_QEMU_PARKD": "3"}, {}, "unknown setting OSGYM_QEMU_PARKD; did you mean qemu.parked"),
        (None, {}, {"qemu.parked": "many"}, "qemu.parked: .* .command line."),
        (None, {}, {"nonesuch.parked": "2"}, "unknown setting nonesuch.parked"),
    ],
)
def test_what_is_wrong_is_named(
    tmp_path: Path, file: str | None, environment: dict[str, str], flags: dict[str, Any], said: str
) -> None:
    """The key, where it stands, and what was probably meant."""
    path = None
    if file is not None:
        path = tmp_path / "c.yaml"
        path.write_text(file)
    with pytest.raises(SettingsError, match=said.replace("?", r"\?")):
        load(path, environment, flags)


def test_a_runtime_has_settings_below_its_name(tmp_path: Path) -> None:
    """In each source; what another source says of the same runtime stays."""
    file = tmp_path / "config.yaml"
    file.write_text("qemu:\n  parked: 3\n  runner: container\n")
    settings = load(file, {"OSGYM_QEMU_PARKED": "4", "OSGYM_QEMU_TB_MIB": "32"}, {"qemu.network": "tap"})
    own = settings.of_runtime("qemu", QemuSettings)
    assert (own.parked, own.runner, own.tb_mib, own.network) == (4, "container", 32, "tap")
    assert load(None, {}, {}).of_runtime("qemu", QemuSettings) == QemuSettings()


def test_former_names_are_taken_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One line for each, with the new name."""
    file = tmp_path / "config.yaml"
    file.write_text("snapshot: warm\n")
    own = load(file, {"OSGYM_PARKED": "4"}, {}).of_runtime("qemu", QemuSettings)
    assert (own.snapshot, own.parked) == ("warm", 4)
    assert [record.getMessage() for record in caplog.records] == [
        f"snapshot is now called qemu.snapshot ({file})",
        "OSGYM_PARKED is now called OSGYM_QEMU_PARKED (environment)",
    ]


def test_notices_are_named(tmp_path: Path) -> None:
    """`off` in YAML is false there, and means the word."""
    file = tmp_path / "config.yaml"
    file.write_text("notices: off\n")
    assert load(file, {}, {}).notices == "off"
    assert load(file, {"OSGYM_NOTICES": "file:/run/x", "OSGYM_DRAIN_MARGIN_S": "2"}, {}).drain_margin_s == 2


def test_off_loopback_needs_a_token_or_addresses() -> None:
    """Either opens the door; nothing else does."""
    assert load(None, {"OSGYM_TOKEN": "s"}, {"host": "0.0.0.0"}).token is not None
    settings = load(None, {"OSGYM_ALLOWED_IPS": "10.0.0.5, 10.1.0.0/16"}, {"host": "::"})
    assert [str(n) for n in settings.allowed_ips] == ["10.0.0.5/32", "10.1.0.0/16"]
    assert load(None, {}, {"host": "::1"}).is_loopback


def test_the_token_is_not_shown() -> None:
    """A settings object can be logged."""
    assert "secret" not in repr(load(None, {"OSGYM_TOKEN": "secret"}, {}))


def test_variables_of_other_tools_do_not_stop_the_service(caplog: pytest.LogCaptureFixture) -> None:
    """A name that is like no setting is warned of, once and by name; the rest is read."""
    settings = load(None, {"OSGYM_WANDB_PROJECT": "x", "OSGYM_K8S_NODE": "y", "OSGYM_WARM": "3"}, {})
    assert settings.warm == 3
    assert [record.getMessage().split()[0] for record in caplog.records] == [
        "OSGYM_WANDB_PROJECT",
        "OSGYM_K8S_NODE",
    ]


@pytest.mark.parametrize("name", ["OSGYM_PORT", "OSGYM_MAX_REPLICA", "OSGYM_DATADIR", "OSGYM_TOKENS"])
def test_a_misspelt_variable_is_refused(name: str) -> None:
    """What was meant as a setting never goes unused in silence."""
    with pytest.raises(SettingsError, match=f"unknown setting {name}; did you mean"):
        load(None, {name: "1"}, {})


@pytest.mark.parametrize("key", ["wandb_project", "k8s_node"])
def test_the_file_stays_strict(tmp_path: Path, key: str) -> None:
    """Nobody but us writes there."""
    file = tmp_path / "config.yaml"
    file.write_text(f"{key}: x\n")
    with pytest.raises(SettingsError, match=f"unknown setting {key}"):
        load(file, {}, {})


def test_other_parts_variables_are_not_settings() -> None:
    """The SDK's and the tests' variables may stand in the same environment."""
    load(None, {"OSGYM_HOSTS": "http://x", "OSGYM_CA": "f", "OSGYM_TEST_X": "1"}, {})


def test_every_setting_is_documented() -> None:
    """SETTINGS.md holds exactly the table that the code gives, and no row is empty."""
    assert table() in (ROOT / "host_agent" / "SETTINGS.md").read_text()
    for model in (Settings, QemuSettings):
        assert all(field.description for field in model.model_fields.values())


def test_the_config_file_of_the_start_script_is_valid() -> None:
    """`config.yaml` has the ports of the OSGym workers."""
    assert load(ROOT / "config.yaml", {}, {}).ports[0] == 20000
