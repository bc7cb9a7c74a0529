"""What providers offer: data in TOML with source and date, a loader, and refreshing from price APIs."""
