"""The agents: Macro Thinking (`policies/`), Micro Coding (`coders/`), and the client of language models (`llm/`)."""
