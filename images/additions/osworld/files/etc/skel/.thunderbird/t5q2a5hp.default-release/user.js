// Preferences of the profile that tasks expect; none so far.
