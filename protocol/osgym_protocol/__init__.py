"""What OSGym's client, host agent and guest agent say to each other, written once. Standard library only.

Nothing is imported here: the guest agent, which starts in every desktop, must not pay for the messages of
the host's API. `limits` has every bound and default, `codes` the enums, `actions` and `keysyms` what a step
does, `options` how it waits and looks, `observation` what it answers, `records` how frames travel, `codec`
how messages become JSON; `version` is that of all
distributions; `host_api` and `guest_api` are what is particular to either protocol.
"""
