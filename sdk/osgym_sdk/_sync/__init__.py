"""The client for code without `async`: the asynchronous one on an event loop in a thread."""
