"""Where hosts come from: one package for each provider, and the registry of them."""
