"""How many calls in a row a version has to be right in where something is kept from one to the next."""

CALLS, SCREENED_CALLS = 3, 2
"""In a row, where a reference changes something: the last one on other inputs than those before. A screening has no call on
the inputs of the call before."""
