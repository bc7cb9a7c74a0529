"""Messages, actions, options, codes, bounds and records that client, host agent and guest agent share.

Standard library only. Nothing is imported here: the guest agent, which starts in every desktop, must not pay
for the messages of the host's API. `limits` has every bound and default, `codes` the enums, `actions` and
`keysyms` the actions of a step, `options` its wait and its image, `observation` its answer, `records` the
frames on the wire, `codec` the conversion of messages to JSON, `version` the version of all distributions.
`host_api` and `guest_api` have what only one of the two protocols has.
"""
