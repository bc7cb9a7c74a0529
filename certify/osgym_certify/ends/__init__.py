"""End states made from the right one by machine: mutations are wrong, equivalents are right.

Pure: the same golden files and seed give the same end states.
"""
