"""Runtime: units of work, executors, compiled programs, keys, progress; knows no method."""
