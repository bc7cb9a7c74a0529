"""Remote calls from a task's test to a result's program, which runs in a process of its own.

The test computes the verdict in one confined process; the program runs in another. One stream connects them:
the test's process sends operations (`remote`), the program's process carries them out (`served`). Values
travel as plain data (`wire`), which the test's process rebuilds before it compares. A program therefore
decides what its functions return, and cannot change the test.
"""
