"""Requests to one host: connections, HTTP, retries."""
