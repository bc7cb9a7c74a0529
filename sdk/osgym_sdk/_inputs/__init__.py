"""Values that callers pass: actions, decisions, options, tasks, grammars."""
