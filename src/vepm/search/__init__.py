"""Search for better settings, judged on validation alone: one space, one log, one ranking."""
