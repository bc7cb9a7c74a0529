"""How a virtual machine is connected: user-mode networking, or a tap in a namespace of its own."""
