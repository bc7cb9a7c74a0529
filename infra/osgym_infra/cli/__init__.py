"""The commands: plan, catalogue, calibrate. Registered with `osgym` through the group `osgym.commands`."""
