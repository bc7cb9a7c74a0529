"""What goes wrong with a browser."""

from osgym_host.tasks.getter_plugin import OsgymHostError


class BrowserProblem(OsgymHostError):
    """The browser does not do what it is asked, or talks nonsense: its own doing, or the replica's."""


class BrowserClosed(BrowserProblem):
    """Nothing listens at the debugging port."""


class NotTheBrowser(BrowserProblem):
    """Another program listens at the debugging port."""
