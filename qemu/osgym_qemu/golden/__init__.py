"""Golden snapshots: frozen files and RAM in memory that clones share, and templates they are made of."""
