"""`osgym fleet dashboard`: one page for all hosts of a fleet, which asks them as a client of the SDK does."""
