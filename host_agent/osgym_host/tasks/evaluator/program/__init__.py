"""Programs of a result, run in a process of their own while a task's test asks them.

The test and the verdict are in one confined process, the program in another. Between them is one stream:
the test asks (`remote`), the program's process answers (`served`) in plain data (`wire`), which the test's
process rebuilds before it compares. So a program decides what its functions return, and nothing else.
"""
