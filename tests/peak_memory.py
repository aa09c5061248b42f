"""The peak memory of a process that a test starts."""


def peak_megabytes() -> int:
    """Return the peak of this process since it started its program; getrusage would count its parent's memory."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) >> 10 for line in status if line.startswith("VmHWM"))
