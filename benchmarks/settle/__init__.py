"""Settle policies, judged by the same screen three seconds later."""
