"""reference: the trusted side of checking: the task's own results, how exact they are, and whether others agree."""
