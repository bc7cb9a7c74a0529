"""Many quick episodes over replicas that break on command, each with a known class of failure."""
