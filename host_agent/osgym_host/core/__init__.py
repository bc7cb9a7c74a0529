"""Pure decisions: states and transitions, reasons, the pool plan, admission. No I/O, no clock."""
