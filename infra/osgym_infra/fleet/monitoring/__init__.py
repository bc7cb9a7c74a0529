"""What Prometheus and Grafana need to watch a fleet, made from fleet.json. Pure."""
