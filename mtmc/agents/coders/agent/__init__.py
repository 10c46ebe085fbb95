"""The agent as variation operator: tools, the loop that uses them, and its transcript."""
