"""OSWorld's provider over real desktops: its controllers reach them by the address that it gives."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tests.support.host_process import HostProcess, wait_until

from osgym_sdk import ConfigError, NoCapacity
from osgym_sdk.integrations import _desktop

if importlib.util.find_spec("desktop_env") is None:
    pytest.skip("missing: desktop-env", allow_module_level=True)

from osgym_osworld import harness
from osgym_osworld.harness import OsgymManager, OsgymProvider, ProviderOptions

pytestmark = [pytest.mark.desktop, pytest.mark.timeout(180)]


@pytest.fixture(autouse=True)
def _no_shared_client_is_left() -> Iterator[None]:
    """The process's client would close at its exit."""
    yield
    for client in list(_desktop._CLIENTS.values()):
        client.close()
    _desktop._CLIENTS.clear()


@pytest.fixture
def provider(host: HostProcess) -> Iterator[OsgymProvider]:
    """A provider of the shared host, started; afterwards everything is given back."""
    made = OsgymProvider(None, ProviderOptions(host.url, wait_s=60))
    made.start_emulator("osgym", True, "Ubuntu")
    yield made
    made.stop_emulator("osgym")
    wait_until(lambda: not host.replicas("leased"), 20, "all desktops given back")


def controller_of(provider: OsgymProvider) -> Any:
    """OSWorld's own controller at the provider's address."""
    host, server, *_ = provider.get_ip_address("osgym").split(":")
    module = importlib.import_module("desktop_env.controllers.python")
    made = module.PythonController(host, int(server))
    made.retry_times, made.retry_interval = 1, 0
    return made


def test_their_controller_works_on_it(provider: OsgymProvider) -> None:
    """Pictures, the tree, commands and files, over port 5000 of the desktop."""
    controller = controller_of(provider)
    assert controller.get_screenshot()[:4] == b"\x89PNG"
    assert "desktop-frame" in controller.get_accessibility_tree()
    assert controller.run_bash_script("echo hello")["output"] == "hello\n"
    controller.execute_python_command("open('/tmp/said', 'w').write('by pyautogui')")
    assert controller.get_file("/tmp/said") == b"by pyautogui"


def test_nothing_else_is_behind_that_port(provider: OsgymProvider) -> None:
    """The agent's own calls are not; and in the desktop itself nobody listens there."""
    _, server, chromium, *_ = provider.get_ip_address("osgym").split(":")
    url = f"http://127.0.0.1:{server}"
    for path in ("/v1/step", "/v1/health", "/v1/reach/execute", "/v1/identity"):
        assert httpx.post(url + path, json={}, timeout=20).status_code == 404
    said = controller_of(provider).run_bash_script("exec 3<>/dev/tcp/127.0.0.1/5000")
    assert "refused" in str(said)
    with pytest.raises(httpx.TransportError):
        httpx.get(f"http://127.0.0.1:{chromium}/json", timeout=20)


def test_a_snapshot_is_a_fresh_clone(provider: OsgymProvider, host: HostProcess) -> None:
    """What was done is gone; the address is another one; a start that was made already makes no second."""
    controller_of(provider).run_bash_script("touch /tmp/used")
    before = provider.get_ip_address("osgym")
    provider.start_emulator("osgym", True, "Ubuntu")
    assert provider.get_ip_address("osgym") == before and len(host.replicas("leased")) == 1
    provider.revert_to_snapshot("osgym", "init_state")
    with pytest.raises(ConfigError, match="start_emulator"):
        provider.get_ip_address("osgym")
    provider.start_emulator("osgym", True, "Ubuntu")
    assert provider.get_ip_address("osgym") != before
    assert "No such file" in str(controller_of(provider).run_bash_script("ls /tmp/used"))
    provider.stop_emulator("osgym")
    provider.stop_emulator("osgym")
    with pytest.raises(NotImplementedError, match="checkpoint"):
        provider.save_state("osgym", "later")


def test_it_stands_in_the_place_of_docker(host: HostProcess) -> None:
    """One import; other names are still theirs; what is wrong is named."""
    import desktop_env.providers as providers

    harness.install(host.url)
    try:
        manager, made = providers.create_vm_manager_and_provider("docker", None, use_proxy=False)
        assert isinstance(manager, OsgymManager) and isinstance(made, OsgymProvider)
        assert manager.get_vm_path(os_type="Ubuntu", region=None, screen_size=(1920, 1080))
        with pytest.raises(NotImplementedError):
            providers.create_vm_manager_and_provider("hyper-v", None)
        with pytest.raises(ConfigError, match="Linux"):
            made.start_emulator("osgym", True, "Windows")
        with pytest.raises(ConfigError, match="wait_s"):
            harness.install(wait_s=0)
    finally:
        harness.uninstall()
    assert providers.create_vm_manager_and_provider.__module__ == "desktop_env.providers"
    harness.install()


def test_no_desktop_is_said_so(host: HostProcess) -> None:
    """Not a hang of desktop-env's."""
    many = [OsgymProvider(None, ProviderOptions(host.url, wait_s=0.2)) for _ in range(12)]
    try:
        with pytest.raises(NoCapacity):
            for one in many:
                one.start_emulator("osgym", True, "Ubuntu")
    finally:
        for one in many:
            one.stop_emulator("osgym")
