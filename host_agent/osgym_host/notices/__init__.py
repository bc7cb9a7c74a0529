"""Notices that this host will be taken away: their sources, and the watch for them.

A notice changes nothing by itself; `episodes.draining` reacts to it. A source that fails is asked again and
again; its last notice holds until it says otherwise.
"""
