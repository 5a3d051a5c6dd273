"""The process group: which rank this process is, and what the ranks tell each other."""

import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from nmt_cli.errors import UserError
from nmt_cli.runtime.devices import is_gpu
from nmt_cli.runtime.memory import out_of_memory

Thing = TypeVar("Thing")

SLURM_PORTS = 29_500, 1_000
"""The first port, and how many there are for the jobs on a machine; the job's number chooses one."""

PATIENCE = 60
"""Times the timeout that ranks wait for each other where one may be busy for minutes with what the others do
not do. One that has ended is noticed at once."""

TIMED_OUT = re.compile("(?i)timed out|timeout")
MISSING = re.compile(r"(?i)\b(ranks? \d+(?:, \d+)*) failed to pass")
"""What gloo says of who kept the others waiting."""

# PyTorch 2.13 has given them other names, and warns of the old ones.
_sum_part = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
_gather_parts = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor

WISHES = 4
"""How many bits `Group.agree` sends; each is a wish with a meaning of its own."""


@dataclass(frozen=True, slots=True)
class Process:
    """The rank of this process among those that train together, on all machines and on its own (local)."""

    rank: int = 0
    world: int = 1
    local_rank: int = 0
    local_world: int = 1

    @property
    def first(self) -> bool:
        """Whether this is rank 0, the only one that writes files."""
        return self.rank == 0


def process_from_environment() -> Process:
    """Return this process by the variables of torchrun, or else of Slurm; one process alone without them.

    Raises `UserError` that names the variable if one is missing or makes no sense.
    """
    env = os.environ
    # Before Slurm, since a Slurm job may start torchrun.
    if "RANK" in env and "WORLD_SIZE" in env:
        local = _number("LOCAL_RANK", "0"), _number("LOCAL_WORLD_SIZE", "1", least=1)
        process = Process(_number("RANK"), _number("WORLD_SIZE", least=1), *local)
    elif "SLURM_STEP_NODELIST" in env and _number("SLURM_NTASKS", "1") > 1:  # started by srun
        process = _process_from_slurm()
    else:
        return Process()
    if process.rank >= process.world:
        raise UserError(f"the rank of this process is {process.rank}, but there are only {process.world}.")
    return process


def _process_from_slurm() -> Process:
    env = os.environ
    world, nodes = _number("SLURM_NTASKS"), _number("SLURM_NNODES", "1", least=1)
    # Slurm names no port: its job's number spreads the jobs of a machine over several.
    first, count = SLURM_PORTS
    # A meeting point that was given stays.
    env.setdefault("MASTER_ADDR", first_host(env["SLURM_STEP_NODELIST"]))
    if "MASTER_PORT" not in env:
        env["MASTER_PORT"] = str(first + _number("SLURM_JOB_ID") % count)
    by_node = tasks_by_node(env.get("SLURM_TASKS_PER_NODE", ""))
    node = _number("SLURM_NODEID", "0")
    # Launchers that imitate srun may not list the tasks of each node.
    tasks = by_node[node] if node < len(by_node) else -(-world // nodes)
    return Process(_number("SLURM_PROCID"), world, _number("SLURM_LOCALID"), tasks)


def _number(name: str, default: str | None = None, least: int = 0, most: int = 2**31) -> int:
    """Return the whole number that an environment variable holds."""
    text = os.environ.get(name, default)
    if text is None:
        raise UserError(f"the launcher does not set {name}; set it for each process.")
    if text.isascii() and text.isdecimal() and len(text) < 11 and least <= int(text) <= most:
        return int(text)
    raise UserError(f"{name} must be a whole number from {least:,} to {most:,} (got {text!r:.50}).")


def tasks_by_node(text: str) -> list[int]:
    """Return the tasks on each node from Slurm's list: "4(x2),3" is 4, 4 and 3."""
    return [
        int(tasks)
        for tasks, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", text)
        for _ in range(int(times or 1))
    ]


def first_host(nodes: str) -> str:
    """The first host of Slurm's list of them: of "node[07-09,12],other3" it is node07."""
    return re.sub(r"\[(\d+)[^\]]*\]", r"\1", nodes).split(",")[0]


class LostContact(UserError):
    """Some process that trains together with this one has ended or can't be reached."""


class Group:
    """The processes that train together; one process alone sends nothing.

    Tensors on GPUs are summed by nccl. All else that the processes tell each other goes through gloo, from
    host to host, so that no process has to wait for its GPU.
    """

    def __init__(self, process: Process, device: torch.device, timeout: float) -> None:
        self.process, self.device = process, device
        self._hosts: Any = None
        self._patient: Any = None
        self._pending: tuple[Any, Tensor] | None = None
        self._store: Any = None
        self._doing = ""
        if process.world > 1:
            patience = timedelta(seconds=timeout)
            dist.init_process_group(
                "nccl" if is_gpu(device) else "gloo",
                store=_meeting(process, timeout),
                rank=process.rank,
                world_size=process.world,
                timeout=2 * patience,  # what waits on the host is to speak first
                device_id=device if is_gpu(device) else None,
            )
            self._hosts = dist.new_group(backend="gloo", timeout=patience)
            # Times out on its own: how long each rank waits for the others is a group's, not a call's.
            self._patient = dist.new_group(backend="gloo", timeout=PATIENCE * patience)
            if find := getattr(dist.distributed_c10d, "_get_default_store", None):
                self._store = find()  # private, and only to tell more of an error
            self.busy("starting")

    def sum(self, tensor: Tensor) -> None:
        """Put the sum over all ranks into `tensor`, in place."""
        if self.process.world > 1:
            with self._in_contact():
                dist.all_reduce(tensor)

    def sum_parts(self, vector: Tensor) -> None:
        """Put the sum over all ranks into this rank's part of `vector`, of as many equal parts as there are
        ranks; the others' parts are arbitrary then."""
        with self._in_contact():
            _sum_part(vector.chunk(self.process.world)[self.process.rank], vector)

    def share_parts(self, vector: Tensor) -> None:
        """Put every rank's own part of `vector` into it on all ranks."""
        with self._in_contact():
            _gather_parts(vector, vector.chunk(self.process.world)[self.process.rank])

    def whole(self, part: Tensor) -> Tensor:
        """The parts of all ranks one behind the other, in a new vector."""
        vector = part.new_empty(self.process.world * len(part))
        with self._in_contact():
            _gather_parts(vector, part)
        return vector

    def share_first(self, tensors: Iterable[Tensor]) -> None:
        """Copy the first rank's `tensors` into those of every rank, in place."""
        if self.process.world > 1:
            with self._in_contact():
                for tensor in tensors:
                    dist.broadcast(tensor.detach(), src=0)  # nothing is to be differentiated

    def gather(self, thing: Thing) -> list[Thing]:
        """The `thing` of every rank, in order of rank."""
        if self.process.world == 1:
            return [thing]
        everybodys: list[Any] = [None] * self.process.world
        with self._in_contact():
            dist.all_gather_object(everybodys, thing, group=self._hosts)
        return everybodys

    def from_first(self, thing: Thing) -> Thing:
        """The `thing` of the first rank, on every rank."""
        if self.process.world == 1:
            return thing
        holder = [thing]
        with self._in_contact():
            dist.broadcast_object_list(holder, src=0, group=self._hosts)
        return holder[0]

    def agree(self, wishes: int) -> int:
        """Tell all ranks this rank's wishes (bits), and return what any rank wished one step before.

        All ranks call it once a step, and it does not wait for the slower ones. So all of them, the one with
        the wish too, act on a wish after the same step.
        """
        if self.process.world == 1:
            return wishes
        # What is sent now is waited for at the next step, when it has long arrived.
        flags = torch.tensor([wishes >> bit & 1 for bit in range(WISHES)], dtype=torch.uint8)
        with self._in_contact():
            work = dist.all_reduce(flags, op=dist.ReduceOp.MAX, group=self._hosts, async_op=True)
            before, self._pending = self._pending, (work, flags)
            if before is None:
                return 0
            before[0].wait()
        return sum(int(flag) << bit for bit, flag in enumerate(before[1].tolist()))

    def busy(self, doing: str) -> None:
        """Let the others know what this rank does, for when it keeps them waiting."""
        if self._store is not None and doing != self._doing:
            self._doing = doing
            with self._in_contact():
                self._store.set(f"nmt/doing/{self.process.rank}", doing)

    def meet(self, doing: str) -> None:
        """Wait for all ranks, each busy with `doing` until it comes; however many minutes one may need."""
        if self.process.world > 1:
            self.busy(doing)
            with self._in_contact():
                dist.monitored_barrier(self._patient, wait_all_ranks=True)

    def _in_contact(self) -> AbstractContextManager[None]:
        return _lost_contact(self.process, self._others)

    def _others(self) -> str:
        """What each of the others was last known to do, as far as can be found out."""
        known = []
        for rank in set(range(self.process.world)) - {self.process.rank}:
            with suppress(RuntimeError):  # who keeps them may be gone
                if self._store is not None and self._store.check([key := f"nmt/doing/{rank}"]):
                    known.append(f"process {rank} was {self._store.get(key).decode()}")
        return f"this one was {self._doing}, {', '.join(known)}" if known else ""

    def close(self) -> None:
        """Leave the group."""
        if self.process.world > 1 and dist.is_initialized():
            dist.destroy_process_group()


@contextmanager
def joined(process: Process, device: torch.device, timeout: float) -> Iterator[Group]:
    """Return the group of this run, which is left however the block ends."""
    with _lost_contact(process):
        group = Group(process, device, timeout)
    try:
        yield group
    finally:
        group.close()


def _meeting(process: Process, timeout: float) -> Any:
    """Return the store through which the processes meet, at MASTER_ADDR and MASTER_PORT.

    Raises `UserError` after `timeout` seconds. The library itself waits forever for the answer of a server
    that accepts the connection and then says nothing, hence the thread.
    """
    address, port = os.environ.get("MASTER_ADDR"), _number("MASTER_PORT", least=1, most=65_535)
    if not address:
        raise UserError("the launcher does not set MASTER_ADDR; set it for each process.")
    future: Future[Any] = Future()

    def meet() -> None:
        try:
            of = process.rank, process.world
            future.set_result(next(rendezvous("env://", *of, timeout=timedelta(seconds=timeout)))[0])
        except Exception as error:
            future.set_exception(error)

    threading.Thread(target=meet, name="rendezvous", daemon=True).start()
    try:
        store = future.result(timeout + 1)  # the library has more to say, if it answers at all
    except (TimeoutError, RuntimeError) as error:
        message = f"process {process.rank} could not meet the others at {address}:{port} in {timeout:g} s"
        if "EADDRINUSE" in str(error):
            message = f"port {port}, where the processes are to meet, is in use"
        raise UserError(f"{message}; check MASTER_ADDR and MASTER_PORT, the same for all.") from error
    return PrefixStore("default_pg", store)


@contextmanager
def _lost_contact(process: Process, others: Callable[[], str] = str) -> Iterator[None]:
    """Turn what the library raises into `LostContact`; `others` tells what is known of them."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        # Out of memory is a RuntimeError too, and is dealt with elsewhere.
        if out_of_memory(error):
            raise
        waited = TIMED_OUT.search(str(error))
        told = f"process {process.rank} {'waited too long for' if waited else 'lost contact with'} the others"
        if ranks := MISSING.search(str(error)):
            told += f", {ranks[1]} did not come"
        if known := others():
            told += f" ({known})"
        cure = "raise training.rank_timeout if they are slow, or " if waited else ""
        raise LostContact(f"{told}; {cure}see what another one said last.") from error


def threads_each(cores: int, process: Process) -> int:
    """How many threads each process on this machine should use."""
    return max(1, cores // process.local_world)


def child_environments(devices: int, port: int) -> Sequence[dict[str, str]]:
    """What torchrun would set for `devices` processes on this machine alone."""
    shared = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(devices),
        "LOCAL_WORLD_SIZE": str(devices),
    }
    return [{**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(devices)]
