"""Notices that this host will be taken away: where they come from, and watching for them.

A notice changes nothing by itself; `episodes.draining` does what follows. A source that fails is asked
again and again; what it told before holds until it says otherwise.
"""
