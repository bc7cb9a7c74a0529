"""`Client.from_fleet`: what it takes from fleet.json, and what it says when that is not enough."""

from __future__ import annotations

import asyncio
import json
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from osgym_infra.hosts import tls
from osgym_sdk import AsyncClient, AuthError, Client, ConfigError, HostUnreachable

pytestmark = pytest.mark.usefixtures("no_client_settings")

TOKEN = "a-token-of-a-fleet-file"


def fleet(folder: Path, url: str, **other: Any) -> Path:
    """A fleet.json with one host."""
    host = {"id": "a", "zone": "", "url": url, "server_name": "", "capacity": 2, "market": "dedicated"}
    host |= other.pop("host", {})
    path = folder / "fleet.json"
    path.write_text(json.dumps({"schema_version": 1, "hosts": [host], "ca": "", "token_secret": ""} | other))
    return path


@pytest.mark.parametrize("name_in_certificate", ["127.0.0.1", "lab.osgym.internal"])
async def test_only_the_fleets_authority_and_name_are_trusted(
    tmp_path: Path, name_in_certificate: str
) -> None:
    """A host with a certificate of the fleet is asked, with the token of the file; another one never is."""
    now = datetime.now(UTC)
    ca, stranger = tls.make_ca("lab", now), tls.make_ca("lab", now)
    pair = tls.issue(ca, [name_in_certificate], now)
    (tmp_path / "pair.pem").write_text(pair.certificate + pair.key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "pair.pem")
    heard: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        body = b'{"code":"unauthorized","message":"seen","details":{}}'
        writer.write(b"HTTP/1.1 401 no\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    (tmp_path / "token").write_text(TOKEN + "\n")
    shown = "" if name_in_certificate == "127.0.0.1" else name_in_certificate
    given = {"host": {"server_name": shown}, "token_secret": "file:token"}
    async with server:
        async with AsyncClient.from_fleet(fleet(tmp_path, url, ca=ca.certificate, **given)) as client:
            (state,) = (await client.host_states()).values()
        assert isinstance(state, AuthError), state
        assert f"authorization: bearer {TOKEN}".encode() in heard[-1].lower()
        heard.clear()
        wrong = (
            {"ca": stranger.certificate, **given},
            {"ca": ca.certificate, **given, "host": {"server_name": "x"}},
        )
        for other in wrong:
            async with AsyncClient.from_fleet(fleet(tmp_path, url, **other)) as client:
                (state,) = (await client.host_states()).values()
            assert isinstance(state, HostUnreachable), state
            assert "certificate" in str(state).lower()
        assert heard == []


def test_arguments_win_over_the_environment_and_that_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a token can be changed without touching the file."""
    (tmp_path / "token").write_text("of-the-file")
    path = fleet(tmp_path, "http://10.0.0.5:20000", token_secret="file:token")
    with Client.from_fleet(path) as client:
        assert (client.hosts, client._inner._config.token) == (("http://10.0.0.5:20000",), "of-the-file")
    monkeypatch.setenv("OSGYM_TOKEN", "of-the-environment")
    with Client.from_fleet(path) as client:
        assert client._inner._config.token == "of-the-environment"
    with Client.from_fleet(path, token="of-the-call") as client:
        assert client._inner._config.token == "of-the-call"


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"schema_version": 2}, "schema_version 2"),
        ({"hosts": []}, "names neither hosts"),
        ({"hosts": [{"id": "a"}]}, "host a has no url"),
        ({"ca": "nonsense"}, "ca is not a PEM certificate"),
        ({"token_secret": "aws:arn:aws:secretsmanager:x"}, "aws:arn:aws:secretsmanager:x"),
        ({"token_secret": "file:/nowhere/token"}, "--token-file"),
    ],
)
def test_what_a_file_lacks_is_said(tmp_path: Path, other: dict[str, Any], says: str) -> None:
    """By the name of what is wrong, and what would do."""
    with pytest.raises(ConfigError, match=says):
        AsyncClient.from_fleet(fleet(tmp_path, "http://10.0.0.5:20000", **other))
    with pytest.raises(ConfigError, match="cannot be read"):
        AsyncClient.from_fleet(tmp_path / "none.json")
