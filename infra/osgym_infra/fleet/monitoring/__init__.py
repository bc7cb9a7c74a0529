"""Configuration of Prometheus and Grafana for a fleet, made from fleet.json. Pure."""
