"""When is the screen final? The settle policies against the same screen three seconds later."""
