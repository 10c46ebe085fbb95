"""Seccomp: a filter of system calls in the calling process, for good: what no kernel and no compiler needs is refused.

The answer is EPERM, as a library expects it where it lacks a right. System calls that are newer than this table, and
clone3, whose flags no filter can read, answer ENOSYS, and libraries fall back to the older ones. What stays is held by
the other means: files by Landlock and mounts, memory by limits.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from typing import Literal

from mtmc.evaluate.sandbox.capabilities import libc, no_new_privileges
from mtmc.evaluate.sandbox.landlock import scopes_signals

Profile = Literal["candidate", "build", "keeper"]

_SECCOMP = {"x86_64": 317, "aarch64": 277}
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_LAST_KNOWN = 462  # mseal

# Numbers by name: x86_64, aarch64; None where an architecture does not have the call.
_REFUSED: dict[str, tuple[int | None, int | None]] = {
    # other processes
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
    "pidfd_getfd": (438, 438),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "kcmp": (312, 272),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    # escape from the process group, by which a job is ended
    "setsid": (112, 157),
    "setpgid": (109, 154),
    # sockets; the ones a process already has go on working
    "socket": (41, 198),
    "connect": (42, 203),
    "bind": (49, 200),
    "listen": (50, 201),
    "accept": (43, 202),
    "accept4": (288, 242),
    "sendmmsg": (307, 269),
    # objects that outlive a process
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    "memfd_secret": (447, 447),
    # name spaces and file systems
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "open_by_handle_at": (304, 265),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "fanotify_init": (300, 262),
    "mknod": (133, None),
    "mknodat": (259, 33),
    # wide doors into the kernel
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "personality": (135, 92),
    "modify_ldt": (154, None),
    "iopl": (172, None),
    "ioperm": (173, None),
    # the machine
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "syslog": (103, 116),
    "acct": (163, 89),
    "vhangup": (153, 58),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
}
_REFUSED_A_CANDIDATE: dict[str, tuple[int | None, int | None]] = {
    "fork": (57, None),
    "vfork": (58, None),
    "execve": (59, 221),
    "execveat": (322, 281),
}
_MEMFD_CREATE = (319, 279)
_CLONE = (56, 220)
_CLONE3 = (435, 435)
_SENDTO = (44, 206)
_SOCKETPAIR = (53, 199)
_FCNTL = (72, 25)
_IOCTL = (16, 29)
_TAKE_A_PROCESS: tuple[tuple[int, int], ...] = (
    (302, 261),  # prlimit64
    (203, 122),  # sched_setaffinity
    (144, 119),  # sched_setscheduler
    (142, 118),  # sched_setparam
    (314, 274),  # sched_setattr
)
_SEND_A_SIGNAL: tuple[tuple[int, int], ...] = (
    (62, 129),  # kill
    (200, 130),  # tkill
    (234, 131),  # tgkill
    (129, 138),  # rt_sigqueueinfo
    (297, 240),  # rt_tgsigqueueinfo
)
_SET_PRIORITY = ((141, 140), (251, 30))  # setpriority, ioprio_set: whose is the second argument

_CLONE_THREAD = 0x10000
_CLONE_PARENT = 0x8000
_CLONE_NAMESPACES = 0x7E020000
_SOCK_STREAM, _SOCK_KIND = 1, 0xF
_OWNER_COMMANDS = (8, 10, 15)  # F_SETOWN, F_SETSIG, F_SETOWN_EX: would have the kernel send a signal to anyone
_TERMINAL_COMMANDS = (0x8901, 0x8902, 0x5412, 0x541C)  # FIOSETOWN, SIOCSPGRP, TIOCSTI, TIOCLINUX

_EPERM, _ENOSYS = 1, 38
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_LOAD, _JUMP_EQUAL, _JUMP_ABOVE, _AND, _RETURN = 0x20, 0x15, 0x25, 0x54, 0x06

_Code = list[tuple[int, int, int, int]]


def install(profile: Profile, *, memfd: bool = False) -> None:
    """Refuse from now on, in all threads of this process and in its children.

    profile: see `mtmc.evaluate.sandbox.lockdown.lock_down`. memfd: memfd_create may be called.
    Raises: OSError if the kernel or the architecture has no such filter.
    """
    machine = platform.machine()
    if machine not in _SECCOMP:
        raise OSError(_ENOSYS, f"no table of system calls for {machine}")
    # Whom a process may signal no filter can tell but by the number; where Landlock holds signals, compilers' children
    # may also kill each other. A candidate signals nobody but itself.
    signals = profile == "keeper" or (profile == "build" and scopes_signals())
    code = program(profile, machine, os.getpid(), memfd=memfd, signals=signals)
    packed = b"".join(struct.pack("<HBBI", *instruction) for instruction in code)
    buffer = ctypes.create_string_buffer(packed, len(packed))
    header = ctypes.create_string_buffer(struct.pack("@HP", len(code), ctypes.addressof(buffer)))
    no_new_privileges()
    mode_filter, all_threads = ctypes.c_uint(1), ctypes.c_uint(1)
    result = libc().syscall(_SECCOMP[machine], mode_filter, all_threads, header)
    if result != 0:
        number = ctypes.get_errno() if result < 0 else _EPERM
        raise OSError(number, f"seccomp: {os.strerror(number)}")


def program(profile: Profile, machine: str, pid: int, *, memfd: bool = False, signals: bool = False) -> _Code:
    """The filter as BPF instructions (code, jump if true, jump if false, constant).

    pid: of the process it is for. signals: whether it and its children may signal any process (something else holds them).
    """
    at = 0 if machine == "x86_64" else 1
    code: _Code = [(_LOAD, 0, 0, 4), (_JUMP_EQUAL, 1, 0, _AUDIT_ARCH[machine]), (_RETURN, 0, 0, _ERRNO | _EPERM)]
    code += [(_LOAD, 0, 0, 0), (_JUMP_ABOVE, 0, 1, _LAST_KNOWN), (_RETURN, 0, 0, _ERRNO | _ENOSYS)]
    refused = {**_REFUSED, **(_REFUSED_A_CANDIDATE if profile == "candidate" else {})}
    numbers = [each[at] for each in refused.values()] + ([] if memfd else [_MEMFD_CREATE[at]])
    for number in numbers:
        code += _when(number, _refuse()) if number is not None else []
    code += _when(_CLONE3[at], [(_RETURN, 0, 0, _ERRNO | _ENOSYS)])
    kept, value = (_CLONE_THREAD, _CLONE_THREAD) if profile == "candidate" else (0, 0)
    flags = _CLONE_NAMESPACES | _CLONE_PARENT | kept
    code += _when(_CLONE[at], [_argument(0), (_AND, 0, 0, flags), *_allow_only(value)])
    code += _when(_SENDTO[at], _null(4))  # an address: to another than whom the socket is connected to
    code += _when(_SOCKETPAIR[at], [_argument(1), (_AND, 0, 0, _SOCK_KIND), *_allow_only(_SOCK_STREAM)])
    code += _when(_FCNTL[at], [_argument(1), *_allow_but(*_OWNER_COMMANDS)])
    code += _when(_IOCTL[at], [_argument(1), *_allow_but(*_TERMINAL_COMMANDS)])
    for each in _TAKE_A_PROCESS:
        code += _when(each[at], [_argument(0), *_allow_only(0, pid)])
    for each in _SET_PRIORITY:
        code += _when(each[at], [_argument(1), *_allow_only(0, pid)])
    for each in () if signals else _SEND_A_SIGNAL:
        code += _when(each[at], [_argument(0), *_allow_only(pid)])
    return [*code, (_RETURN, 0, 0, _ALLOW)]


def _when(number: int, body: _Code) -> _Code:
    return [(_JUMP_EQUAL, 0, len(body), number), *body]


def _refuse() -> _Code:
    return [(_RETURN, 0, 0, _ERRNO | _EPERM)]


def _argument(index: int, high: bool = False) -> tuple[int, int, int, int]:
    """Load half of a system call's argument (both architectures are little-endian)."""
    return (_LOAD, 0, 0, 16 + 8 * index + (4 if high else 0))


def _allow_only(*values: int) -> _Code:
    allowed = [each for value in values for each in ((_JUMP_EQUAL, 0, 1, value), (_RETURN, 0, 0, _ALLOW))]
    return [*allowed, *_refuse()]


def _allow_but(*values: int) -> _Code:
    refused = [each for value in values for each in ((_JUMP_EQUAL, 0, 1, value), *_refuse())]
    return [*refused, (_RETURN, 0, 0, _ALLOW)]


def _null(index: int) -> _Code:
    """Allow where a pointer is null."""
    low = [_argument(index), (_JUMP_EQUAL, 0, 3, 0)]
    return [*low, _argument(index, high=True), (_JUMP_EQUAL, 0, 1, 0), (_RETURN, 0, 0, _ALLOW), *_refuse()]
