"""The playbook's examples: for each kind of action a task, and a version of it before and after. Nothing here is imported.

`KIND_task.py` is in KernelBench's format, `KIND_before.py` and `KIND_after.py` are whole candidates, written as a user or
a model would write them. `mtmc.agents.coders.playbook` reads them as text; tests/agents/test_playbook.py executes every
pair.
"""
