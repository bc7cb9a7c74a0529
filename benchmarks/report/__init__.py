"""Page of all results, written from the result files alone: `python -m benchmarks.report`."""
