"""The agents: Macro Thinking (policies, `macro.py`) and Micro Coding (coders, `micro.py`)."""
