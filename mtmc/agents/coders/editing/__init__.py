"""How a model is asked for an edit, and what is made of its reply. The prompt stands beside its parser."""
