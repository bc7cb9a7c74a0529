"""HTTP of every service of OSGym: error bodies, bounds of requests, access, the dashboard's page.

The host's API and the dashboard of a fleet (`osgym_cli.fleet_dashboard`) are made of it.
"""
