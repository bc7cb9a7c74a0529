"""What providers offer: data in TOML with source and date, a loader, and refreshing from price APIs."""

from osgym_infra.catalogue.rows import Catalogue, HostRow, Price

__all__ = ["Catalogue", "HostRow", "Price"]
