"""What a stack would create and cost, without an account."""
