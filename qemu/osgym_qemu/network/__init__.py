"""Networks of virtual machines: user-mode networking, or a tap in a namespace of its own."""
