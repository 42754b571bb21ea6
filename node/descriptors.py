"""How many descriptors a node may have: bells, pipes and children of hundreds of workers are more than the usual 1024."""

import resource

_MOST = 16_384  # of some systems' millions: programs that close all that they could have would be slow


def allow_descriptors() -> None:
    """Raise this process's limit as far as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
