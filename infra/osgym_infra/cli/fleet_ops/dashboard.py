"""`osgym fleet dashboard`: one page for all hosts."""

from __future__ import annotations

import webbrowser
from pathlib import Path

import click

from osgym_infra.cli.common import exits
from osgym_infra.cli.fleet_ops.options import fleet_option, interruptible
from osgym_infra.errors import BadInput, OsgymInfraError

PORT = 20080


@click.command()
@fleet_option
@click.option(
    "--hosts", help="URLs of hosts, separated by commas, or a source such as aws-tag://…, instead of --fleet."
)
@click.option("--bind", "address", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="0: a free one.")
@click.option(
    "--token",
    envvar="OSGYM_DASHBOARD_TOKEN",
    help="Token that the page asks for; required when --bind is not loopback.",
)
@click.option("--read-only", is_flag=True, help="Do not let the page take desktops over.")
@click.option("--open", "open_page", is_flag=True, help="Open the page in this machine's browser.")
@interruptible
@exits
def dashboard(
    fleet_path: Path, hosts: str | None, address: str, port: int, token: str | None, read_only: bool,
    open_page: bool,
) -> None:  # fmt: skip
    """Serve one page with the state, desktops, episodes and events of all hosts, until Ctrl-C.

    \b
    Examples:
      osgym fleet dashboard                                 the hosts of fleet.json
      osgym fleet dashboard --hosts http://10.0.0.5:20000,http://10.0.0.6:20000
      ssh -L 20080:127.0.0.1:20080 HOST                     and open http://127.0.0.1:20080/ui here

    This process asks the hosts with the token and certificates of fleet.json (or OSGYM_TOKEN and OSGYM_CA).
    The browser gets neither. While no page is open, no host is asked.
    """
    try:
        from osgym_cli.fleet_dashboard.server import is_loopback, serve
        from osgym_sdk import ConfigError
    except ImportError as error:
        what = "the dashboard is part of the distribution osgym-cli: pip install -c constraints.txt -e cli"
        raise OsgymInfraError(f"{what} ({error})") from error

    def ready(url: str) -> None:
        click.echo(f"Dashboard: {url}")
        if open_page:
            webbrowser.open(url)

    try:
        if not token and not is_loopback(address):
            raise BadInput(
                "--bind",
                f"{address} can be reached by other machines: give --token, or set OSGYM_DASHBOARD_TOKEN",
            )
        source = hosts if hosts is not None else fleet_path
        serve(source, address=address, port=port, token=token or None, read_only=read_only, ready=ready)
    except ConfigError as error:
        raise BadInput("--fleet" if hosts is None else "--hosts", str(error)) from error
    except OSError as error:
        raise OsgymInfraError(f"cannot listen on {address}:{port}: {error.strerror or error}") from error
