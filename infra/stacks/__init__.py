"""The programs, one for each provider; `infra/__main__.py` chooses by the key `osgym:provider`."""
