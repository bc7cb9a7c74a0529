"""Guests without our agent: screen and input by QMP, served as guest protocol v1 on a unix socket.

Nothing above the runtime knows the difference: `Replica.guest` is the address of that socket.
`AgentlessGuest` serves one virtual machine from its second QMP server; for a guest that runs OSWorld's
own server, OSWorld's endpoints are passed on to it.

    guest = await AgentlessGuest.open(MachineFacts(...), socket_path)
    ...  # Replica.guest = guest.address
    await guest.close()
"""
