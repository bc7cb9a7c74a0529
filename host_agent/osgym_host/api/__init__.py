"""HTTP: the API v1, the OSGym-compatible API, metrics, errors."""
