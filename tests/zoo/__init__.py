"""The zoo: real modules made from configurations, and a command that hands each to mtmc (`python -m tests.zoo.run`)."""
