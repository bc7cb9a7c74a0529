"""Cost model: the price of a fleet, and the cheapest hosts. Pure."""
