"""What a replica needs: measured series, what is fitted to them, and the profiles that come along."""
