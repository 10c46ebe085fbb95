"""audit: what a candidate's text says about it, before any of it runs, and which line of it is to blame for an error."""
