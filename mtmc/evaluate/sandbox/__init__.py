"""sandbox: what keeps a candidate inside: namespaces (bubblewrap), Landlock, seccomp, limits, cgroups; and which are active.

Two functions are for users of this package: `mtmc.evaluate.sandbox.launch.start` starts a warm Python process inside, and
`mtmc.evaluate.sandbox.lockdown.lock_down` is what a process forked from it calls before it runs a candidate.
"""
