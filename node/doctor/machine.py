"""Checks of the processor: time, cores, NUMA domains, frequency."""

from cluster_serving.client.servers.checks import Checks, Verdict
from cluster_serving.node.doctor.machine_facts import MachineFacts
from cluster_serving.node.topology import cpulist

MACHINE = Checks[MachineFacts]("Machine")

_STEAL = 0.05  # share of the time
_THROTTLED = 0.05
# These drivers change the frequency by themselves under every governor.
_SELF_GOVERNED = ("intel_pstate", "amd-pstate-epp")
_SLOW_GOVERNORS = {"powersave", "conservative"}


@MACHINE("CS-CPU-QUOTA")
def quota(facts: MachineFacts) -> Verdict:
    """Judge the CPU quota of the control groups against the threads of the job."""
    limit, demand = facts.budget.quota, facts.demand
    if limit is None:
        return Verdict("ok", "no CPU quota")
    wanted = demand.computing if demand else 1
    throttled = demand.throttled if demand else None
    evidence = {"quota": limit, "threads": wanted, "throttled": throttled}
    if wanted <= limit and (throttled or 0) < _THROTTLED:
        return Verdict("ok", f"a quota of {limit:g} cores for {_threads(wanted)}", evidence=evidence)
    measured = "" if throttled is None else f", measured: held back {throttled:.0%} of the last 10 s"
    return Verdict(
        "warn",
        f"{_threads(wanted)} with a quota of {limit:g} cores: all of them stand still once it is used up{measured}",
        f"raise the quota (docker run --cpus), or set modelParallelism and threadPerModel for {max(1, int(limit))}",
        "cluster-serving tune",
        wanted / limit,
        evidence,
    )


@MACHINE("CS-CPU-CPUSET")
def cpuset(facts: MachineFacts) -> Verdict:
    """Judge the allowed cores against the threads of the job, where the process may not use all cores."""
    budget, demand = facts.budget, facts.demand
    allowed = cpulist.written([core.number for core in budget.cores])
    if not budget.others:
        return Verdict("ok", "every core is allowed", evidence={"cores": allowed})
    evidence = {"cores": allowed, "machine": len(budget.cores) + len(budget.others)}
    if demand is None or demand.computing <= len(budget.cores):
        return Verdict("ok", f"cores {allowed} of {evidence['machine']} are allowed", evidence=evidence)
    return Verdict(
        "warn",
        f"{_threads(demand.computing)} on the allowed cores {allowed}: they take turns, and latency grows with each turn",
        f"allow more cores (docker run --cpuset-cpus, taskset), or at most {len(budget.cores)} workers x threads",
        "cluster-serving status --placement",
        demand.computing / len(budget.cores),
        evidence,
    )


@MACHINE("CS-CPU-THREADS")
def threads(facts: MachineFacts) -> Verdict:
    """Judge the threads of the job against the cores of the machine."""
    cores, demand = len(facts.budget.cores), facts.demand
    if demand is None:
        return Verdict("ok", f"{facts.budget.described()}", evidence={"cores": cores})
    evidence = {"cores": cores, "workers": demand.workers, "threads": demand.threads}
    if demand.computing <= cores or facts.budget.others:
        return Verdict("ok", f"{_threads(demand.computing)} on {facts.budget.described()}", evidence=evidence)
    return Verdict(
        "warn",
        f"{demand.workers} workers of {_threads(demand.threads)} on {cores} cores: threads take turns and lose their caches",
        f"set modelParallelism and threadPerModel so that their product is {facts.budget.for_workers}, or both to auto",
        "cluster-serving tune",
        demand.computing / cores,
        evidence,
    )


@MACHINE("CS-CPU-SMT")
def smt(facts: MachineFacts) -> Verdict:
    """Judge the threads of the job against the physical cores."""
    physical, logical, demand = facts.budget.physical, len(facts.budget.cores), facts.demand
    if physical == logical or demand is None or not physical < demand.computing <= logical:
        return Verdict("ok", f"{physical} physical cores, {logical} logical", evidence={"physical": physical})
    return Verdict(
        "warn",
        f"{_threads(demand.computing)} on {physical} physical cores: two of them share the units of one core, and none is left "
        "for the reader and the writer",
        f"set modelParallelism x threadPerModel to {physical} at most, or measure",
        "cluster-serving tune",
        demand.computing / physical,
        {"physical": physical, "logical": logical, "threads": demand.computing},
    )


@MACHINE("CS-CPU-NUMA")
def numa(facts: MachineFacts) -> Verdict:
    """Judge whether memory can be kept on the NUMA domain of its workers."""
    domains = len({core.domain for core in facts.budget.cores})
    if domains == 1 or facts.libnuma:
        return Verdict("ok", f"{domains} NUMA domain{'s' * (domains > 1)}", evidence={"domains": domains})
    return Verdict(
        "warn",
        f"{domains} NUMA domains and no libnuma: pages of the rings may lie on a distant domain, and each access takes longer",
        "install libnuma",
        "apt-get install libnuma1",
        domains,
        {"domains": domains},
    )


@MACHINE("CS-CPU-GOVERNOR")
def governor(facts: MachineFacts) -> Verdict:
    """Judge the frequency governor."""
    slow = facts.governors & _SLOW_GOVERNORS
    if not slow or facts.driver.startswith(_SELF_GOVERNED):
        name = ", ".join(sorted(facts.governors)) or "left to the hypervisor"
        return Verdict("ok", f"frequency governor: {name}", evidence={"driver": facts.driver})
    return Verdict(
        "warn",
        f"frequency governor {', '.join(sorted(slow))}: cores stay at a low frequency while records come",
        "choose the governor performance",
        "sudo cpupower frequency-set -g performance",
        1,
        {"governors": sorted(facts.governors), "driver": facts.driver},
    )


@MACHINE("CS-CPU-STEAL")
def steal(facts: MachineFacts) -> Verdict:
    """Judge the processor time that the hypervisor gives to other machines."""
    evidence = {"steal": round(facts.steal, 3)}
    if facts.steal < _STEAL:
        return Verdict("ok", f"the hypervisor takes {facts.steal:.0%} of the time", evidence=evidence)
    return Verdict(
        "warn",
        f"the hypervisor gives {facts.steal:.0%} of the processor time to other machines (measured now)",
        "move to a machine with cores of its own, or ask the provider",
        "top",
        facts.steal,
        evidence,
    )


def _threads(count: int) -> str:
    return f"{count} thread{'s' * (count != 1)}"
