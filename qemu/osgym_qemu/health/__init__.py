"""Health checks of machines: pure rules, and a monitor that applies them once a second."""
