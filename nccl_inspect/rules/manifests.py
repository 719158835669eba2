"""What files beside the log explain: pods, containers and batch scripts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from nccl_inspect.judging import cuda, exceptions
from nccl_inspect.judging.check import Evidence, Facts, Finding, Hit, Notice, value
from nccl_inspect.judging.evidence import workloads
from nccl_inspect.judging.evidence.workloads import EFA, IN_CONTAINER, Case, Change, match, requests_device, shows
from nccl_inspect.judging.facts import cite_line, hosts_in, ranks_in
from nccl_inspect.judging.impact import SHM
from nccl_inspect.judging.remedies import COMMENT
from nccl_inspect.model.inventory import contents_of
from nccl_inspect.platforms import find_network
from nccl_inspect.util.patterns import compile_later

if TYPE_CHECKING:
    from nccl_inspect.artifacts.containers import Container, Pod


_UNREACHED = (101, 217)
"""CUDA's errors if this process has no such GPU, or no peer access to it: NCCL checks both before it chooses P2P,
except for GPUs that the process does not see (p2pCanConnect in src/transport/p2p.cc)."""


def cuda_ipc_isolated_gpus(facts: Facts) -> Iterator[Hit]:
    """Find failed imports, if all ranks are CUDA device 0 on different GPUs or CUDA's error implies isolation.

    CUDA_VISIBLE_DEVICES hides no GPU from NVML, but a device cgroup does.
    """
    isolated: set[str | None] = set(facts.job.isolated_hosts)
    named: dict[str, object] = {"source": SHM.link}
    failed = [notice for notice in cuda.find_unshared(facts) if isolated.intersection(notice.hosts)]
    failed += [notice for notice in _find_unreached(facts) if not any(notice is other for other in failed)]
    if failed:
        ranks = ranks_in(failed)
        paths = facts.paths("intra", "P2P").filter_values(
            ("src", "dst"), lambda *ends: not ranks or not ranks.isdisjoint(ends)
        )
        named["isolated"] = isolated.intersection(hosts_in(failed))
        yield Hit(failed, named, evidence=[*failed, *paths.first_lines()[:1]])
        return
    unfound = [
        notice
        for notice in facts.notices("nccl/nvml-failed")
        if value(notice, "call") == "DeviceGetHandleByPciBusId" and str(value(notice, "error")).strip() == "Not Found"
    ]
    if unfound:
        processes = {process for notice in unfound for process in notice.processes}
        several = any(len({pid for name, pid, *_ in processes if name == host}) > 1 for host in hosts_in(unfound))
        split = any(notice.earliest.device for notice in unfound)
        # ncclTopoFillGpu asks NVML for the GPU of each rank of the host by its bus id.
        stopped = exceptions.frames(facts, files=("graph/xml.cc",))
        named |= {"hidden": True, "split": split, "several": several, "stopped": stopped}
        yield Hit([*unfound, *stopped[:1]], named)


def _find_unreached(facts: Facts) -> list[Notice]:
    """Find imports that fail because the pair has no P2P, in processes that may see only one GPU."""
    calls = [
        failure.notice
        for failure in cuda.failures(facts)
        if failure.code in _UNREACHED and str(failure.file).endswith("transport/p2p.cc")
    ]
    handles = [
        notice
        for notice in facts.notices("nccl/p2p-ipc-handle-failed")
        if cuda.code_of_text(str(value(notice, "error"))) in _UNREACHED
    ]
    return [notice for notice in (*handles, *calls) if not notice.earliest.device]


def _hit(
    cases: list[Case], effects: list[Finding], lines: Iterable[Evidence], steps: Iterable[str], **named: object
) -> Hit:
    """Return what these containers lack, with the steps that change manifests; those of Docker have options instead."""
    is_docker = cases[0].is_docker
    pods = dict.fromkeys(case.pod.label for case in cases)
    what = {case.container.name for case in cases if not case.is_docker and case.container.name}
    both = {
        "pods": list(pods),
        "container": what.pop() if len(what) == 1 else "",
        "docker": is_docker,
        "steps": [] if is_docker else list(steps),
    }
    return Hit(named={**both, **named}, evidence=lines, effects=effects, cases=cases)


def _explain(
    facts: Facts,
    effects: list[Finding],
    lacks: Callable[[Pod, Container], bool],
    line: Callable[[Case], str],
    *changes: Callable[[Case], Sequence[Change]],
    **named: object,
) -> Iterator[Hit]:
    """Find containers that lack something, with the words for it, and the changes that give it to them."""
    cases, touched = match(facts, effects, lacks)
    if touched:
        steps = chain.from_iterable(workloads.patches(cases, change) for change in changes)
        yield _hit(cases, touched, [case.line(line(case)) for case in cases], steps, **named)


def gpus_bound_to_tasks(facts: Facts, effects: list[Finding]) -> Iterator[Hit]:
    """Find options of sbatch and srun that explain GPU memory that could not be shared."""
    scripts = contents_of(facts.job.artifacts, "slurm_script") if effects else ()
    bindings = ("single", "per_task", "map_gpu", "mask_gpu")
    bound = [
        (Evidence(script.name, option.line, option.text), option)
        for script in scripts
        for option in script.options
        if option.name == "--gpus-per-task" or (option.name == "--gpu-bind" and option.value.startswith(bindings))
    ]
    for line, option in bound[:1]:
        named = {"option": f"{option.name}={option.value}", "name": option.name, "place": cite_line(line)}
        yield Hit([], named, evidence=[line for line, _ in bound], effects=effects)


_OF_NODE = compile_later(r"=\^?=?(?:ens|enp|eno|enP|bond|ib|hsn|mlx|rdma|gpu\d|eth[1-9])")
"""Names of machine interfaces; a pod has eth0."""


def host_network_missing(facts: Facts, effects: list[Finding]) -> Iterator[Hit]:
    """Find interfaces and requested RoCE cards that are not in the network namespace of a pod."""
    cases, touched = match(facts, effects, lambda pod, _: pod.is_whole and not pod.host_network and not pod.networks)
    if shown := [effect for effect in touched if _is_due(facts, effect, cases)]:
        line = "NetworkMode: bridge" if cases[0].is_docker else "no hostNetwork, no annotation for networks"
        yield _hit(
            cases,
            shown,
            [case.line(line, case.pod.line) for case in cases],
            workloads.patches(cases, lambda _: [Change(("hostNetwork",), True, of_pod=True)]),
            google=not cases[0].is_docker and any(shows(one, "no-google-interface") for one in shown),
            sure=any(not shows(one, "not-named") or _has_cards(cases) or _names_interface(one) for one in shown),
        )


def _is_due(facts: Facts, effect: Finding, cases: list[Case]) -> bool:
    """Return whether the network of the node has what is missing."""
    if shows(effect, "not-reached"):  # pods reach each other; containers behind bridges of hosts do not
        return any(case.is_docker for case in cases)
    machines = (workloads.machine(facts, case.pod) for case in cases)
    is_google = any(find_network(machine.network).vendor == "GCP" for machine in machines if machine)
    if shows(effect, "no-google-interface") or (_is_unknown(effect) and is_google):
        return True
    if not shows(effect, "not-named"):
        return _has_cards(cases)
    # EFA does not need interfaces of the node: only the name of one shows that they were expected.
    return not any(case.container.asks(EFA) for case in cases) or _names_interface(effect)


def _names_interface(effect: Finding) -> bool:
    return _OF_NODE.search(effect.summary) is not None


def _has_cards(cases: list[Case]) -> bool:
    """Return whether the containers request cards of the node with addresses there; EFA has none."""
    own = [case.container for case in cases]
    return not any(one.asks(EFA) for one in own) and any(one.privileged or requests_device(one) for one in own)


_NAMED = compile_later(r"huge[ _-]?page", re.IGNORECASE)
_CRASHED = compile_later(r"Bus error|SIGBUS|\bexitcode: -7\b|\bcode:? 135\b", re.IGNORECASE)
"""How the kernel ends a process that touches a huge page beyond the limit of its pod."""


def hugepages_missing(facts: Facts, effects: list[Finding]) -> Iterator[Hit]:
    """Find errors that name huge pages, and bus errors, in pods that request EFA without huge pages."""
    stated = [effect for effect in effects if _mentions(effect, _NAMED)]
    return _explain(
        facts,
        stated or [effect for effect in effects if _mentions(effect, _CRASHED)],
        lambda pod, one: pod.is_whole and one.asks(EFA) and not one.asks("hugepages-"),
        lambda case: f"{EFA}: {case.container.resources[EFA]}, no hugepages-2Mi",
        lambda _: [Change(("resources", "limits"), {"hugepages-2Mi": "5120Mi"})],
        stated=stated,
    )


def _mentions(effect: Finding, pattern: re.Pattern[str]) -> bool:
    return any(pattern.search(text) for text in (effect.summary, *(line.text for line in effect.evidence)))


def ipc_lock_missing(facts: Facts, effects: list[Finding]) -> Iterator[Hit]:
    """Find registrations that fail for lack of locked memory, and containers without the capability.

    Of those that have it, a user other than root does not get it: containers have no ambient capabilities.
    """
    shown = [effect for effect in effects if "locked memory" in effect.cause]
    locks, large = {"IPC_LOCK", "ALL", "CAP_IPC_LOCK"}, 1 << 30

    def is_limited(pod: Pod, one: Container) -> bool:
        return pod.is_whole and not one.privileged and (one.memlock or 0) < large

    cases, touched = match(facts, shown, lambda pod, one: is_limited(pod, one) and not one.capabilities & locks)
    change = Change(("securityContext", "capabilities", "add"), ["IPC_LOCK"])
    words = "no IPC_LOCK in securityContext"
    named: dict[str, object] = {}
    if not touched:
        cases, touched = match(facts, shown, lambda pod, one: is_limited(pod, one) and bool(one.user))
        change = Change(("securityContext", "runAsUser"), 0)
        words = "capabilities.add: IPC_LOCK, runAsUser: {}"
        named = {"user": cases[0].container.user, "docker": False} if touched else {}
    elif cases[0].is_docker:
        words = "no IPC_LOCK in CapAdd, no memlock in Ulimits"
    if touched:
        lines = [case.line(words.format(case.container.user)) for case in cases]
        steps = workloads.patches
        doubtful = all(effect.confidence == "possible" for effect in touched)
        yield _hit(cases, touched, lines, steps(cases, lambda _: [change]), doubtful=doubtful, **named)


def pods_isolated(facts: Facts, effects: list[Finding]) -> Iterator[Hit]:
    """Find ranks of one machine that cannot access each other's memory by what their pods share."""
    nodes = workloads.nodes(facts) if effects else {}

    def show(case: Case) -> str:
        node = case.pod.node or nodes.get(case.pod.name, "")
        share = "IpcMode: private" if case.is_docker else "no hostIPC"
        return f"one GPU, {share}" + (f", nodeName: {node}" if node else "")

    def ask_for_all(case: Case) -> list[Change]:
        """Return one pod per node with all its GPUs."""
        machine = workloads.machine(facts, case.pod)
        name = next(key for key in case.container.resources if "/gpu" in key or key.startswith("nvidia.com/"))
        return [Change(("resources", "limits"), {name: (machine and machine.gpus) or "<GPUs of the node>"})]

    def share_memory(_: Case) -> list[Change]:
        return [Change(("hostIPC",), True, of_pod=True)]

    is_isolated = lambda pod, one: pod.is_whole and one.gpus == 1 and not pod.host_ipc  # noqa: E731
    return _explain(facts, effects, is_isolated, show, ask_for_all, share_memory)


def rdma_device_not_requested(facts: Facts, effects: list[Finding]) -> Iterator[Hit]:
    """Find TCP between hosts, and plugins without a device, by what the pods request."""
    of_efa = [effect for effect in effects if _is_of_efa(effect)]
    machines = (workloads.machine(facts, pod) for pod in (workloads.pods(facts) if effects else ()))
    is_efa = bool(of_efa) or any(machine.network == "efa" for machine in machines if machine)
    cases, touched = match(facts, effects, partial(_lacks_device, is_efa))
    if touched:
        is_docker = cases[0].is_docker
        device = IN_CONTAINER if is_docker else EFA if is_efa else "RDMA device (rdma/…, vpc.amazonaws.com/efa)"
        words = f"no {device} in its {'devices' if is_docker else 'resources'}"
        resources = [sorted(case.container.resources.items()) for case in cases]
        requests = [", ".join(f"{name}: {amount}" for name, amount in some) for some in resources]
        yield _hit(
            cases,
            touched,
            [case.line(words + (f" ({asked})" if asked else "")) for case, asked in zip(cases, requests, strict=True)],
            workloads.patches(cases, lambda case: _changes(facts, case, is_efa)),
            device=device,
            node=workloads.node(facts, cases[0]),
            doubtful=not is_efa and all(map(_is_unknown, touched)),
        )
    elif facts.platform and (nics := facts.platform.nics):
        few = [effect for effect in of_efa if shows(effect, "few-efa-devices")]
        for hit in _explain(
            facts,
            few,
            lambda _, one: 0 < one.amount(EFA) < nics,
            lambda case: f"{EFA}: {int(case.container.amount(EFA))}",
            lambda _: [Change(("resources", "limits"), {EFA: nics})],
            machine=facts.platform.name,
            nics=nics,
        ):
            yield hit.with_fields(named={**hit.named, "amount": int(hit.cases[0].container.amount(EFA))})


def _is_of_efa(effect: Finding) -> bool:
    is_shown = shows(effect, "no-efa", "no-efa-device") and not _is_unknown(effect)
    return is_shown or "ofi" in effect.summary.lower()


def _is_unknown(effect: Finding) -> bool:
    """Return whether the log does not show which RDMA network the machines have."""
    return shows(effect, "no-efa") and shows(effect, "no-ib")


def _lacks_device(is_efa: bool, pod: Pod, container: Container) -> bool:
    """Return whether none of a container's devices is one of EFA, or can be an RDMA NIC.

    Privileged containers have all devices of the node, and claims may add some that the file does not list.
    """
    if container.privileged or container.tree.at("resources", "claims"):
        return False
    has_file = any(device.startswith(IN_CONTAINER) for device in container.devices)
    has_device = container.asks(EFA) or has_file if is_efa else requests_device(container)
    return (pod.is_whole or bool(container.resources)) and not has_device


def _changes(facts: Facts, case: Case, is_efa: bool) -> list[Change]:
    limits: dict[str, object] = {"rdma/<resource of the node>": 1}
    if is_efa:
        machine = workloads.machine(facts, case.pod)
        nics = machine.nics if machine and machine.network == "efa" else None
        hugepages = {} if case.container.asks("hugepages-2Mi") else {"hugepages-2Mi": "5120Mi"}
        limits = {EFA: nics or "<NICs of the node>", **hugepages}
    lock = [] if "IPC_LOCK" in case.container.capabilities else ["IPC_LOCK"]
    locked = [Change(("securityContext", "capabilities", "add"), lock)] if lock else []
    return [Change(("resources", "limits"), limits), *locked]


def shm_volume_missing(facts: Facts, effects: list[Finding]) -> Iterator[Hit]:
    """Find segments that had no room, and the volume mounted at /dev/shm."""
    at_fault = ("no room", "most often /dev/shm")  # beginnings of the cause if the size is at fault
    shown = [effect for effect in effects if effect.cause.startswith(at_fault)]
    # A segment takes up to some tens of MB: NCCL alone never fills 1 GiB per GPU.
    cases, touched = match(facts, shown, lambda pod, one: pod.is_whole and one.shm < (1 << 30) * max(one.gpus, 1))
    if touched:
        first = cases[0].container
        size, default = int(first.shm) >> 20, first.has_default_shm
        yield _hit(cases, touched, map(_line, cases), _steps(cases), size=size, default=default)


def _steps(cases: list[Case]) -> Iterator[str]:
    first = cases[0]
    if first.container.has_default_shm:
        mount = {"name": "dshm", "mountPath": "/dev/shm"}  # noqa: S108 - a path in the container
        volume = {"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": "64Gi"}}
        changes = [Change(("volumeMounts",), [mount]), Change(("volumes",), [volume], of_pod=True)]
        yield from workloads.patches([case for case in cases if case.container.has_default_shm], lambda _: changes)
    else:
        yield f"sizeLimit: 64Gi{COMMENT}{first.pod.file.rpartition('/')[2]}:{first.container.shm_line}: change it there"


def _line(case: Case) -> Evidence:
    container = case.container
    if case.is_docker:
        return case.line(f"ShmSize: {int(container.shm)}", container.shm_line)
    if container.shm_line == container.line:
        return case.line("nothing in volumeMounts has mountPath: /dev/shm")
    return case.line(f"the volume at /dev/shm has sizeLimit: {int(container.shm) >> 20} MiB", container.shm_line)
