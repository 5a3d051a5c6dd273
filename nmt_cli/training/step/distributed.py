"""The process group of a run: the rank of this process, and the communication between ranks.

A rank is the number of a process in the run. Local ranks count the processes of one machine. Ranks meet
through a key-value store (`_meeting`), and exchange tensors and objects after that.
"""

import os
import re
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar
from uuid import uuid4

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from nmt_cli.errors import UserError
from nmt_cli.runtime.devices import gpu_identity, is_gpu
from nmt_cli.runtime.memory import out_of_memory

Value = TypeVar("Value")

SLURM_PORTS = 29_500, 1_000
"""The first port and the number of ports for the jobs on a machine. The job's number chooses one."""

# A node without compiled kernels takes minutes longer than one that has them.
PATIENCE = 12
"""Factor on the timeout while one rank may be busy for minutes alone. A rank that ends is noticed at once."""

POLL_SECONDS = 0.02
"""Time between two checks of the first rank whether all others have come."""

SECONDS_TO_READ = 10.0
"""Time for other ranks to read why the run cannot start."""

TIMED_OUT = re.compile("(?i)timed out|timeout")
MISSING = re.compile(r"(?i)\branks? (\d+(?:, \d+)*) failed to pass")
"""gloo's message about the ranks that did not arrive."""

OWN_ADDRESS = re.compile(r"remote=\[(127\.[\d.]+)")
"""An address in gloo's messages that a machine has for itself only."""


@dataclass(frozen=True, slots=True)
class Process:
    """The rank of this process among all processes of a run, and among those on its machine (local)."""

    rank: int = 0
    world: int = 1
    local_rank: int = 0
    local_world: int = 1

    @property
    def first(self) -> bool:
        """True if this is rank 0, the only one that writes files."""
        return self.rank == 0


def process_from_environment() -> Process:
    """Return the rank of this process as its launcher gives it: by torchrun's variables, or by srun's.
    Without a launcher, it is rank 0 of 1.

    Raise `UserError` if a variable is missing or not a number, or if the rank is not below the number of
    ranks.
    """
    env = os.environ
    # torchrun comes first, since a Slurm job may start it.
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
    """Return the rank from the variables of srun.

    The address and the port where ranks meet follow from the first node and the number of the job. They are
    set in MASTER_ADDR and MASTER_PORT, unless these are set already. Raise `UserError` if a variable is
    missing or not a number.
    """
    env = os.environ
    world, nodes = _number("SLURM_NTASKS"), _number("SLURM_NNODES", "1", least=1)
    # Slurm sets no port. The number of the job spreads the jobs of a machine over several.
    first, count = SLURM_PORTS
    env.setdefault("MASTER_ADDR", first_host(env["SLURM_STEP_NODELIST"]))
    if "MASTER_PORT" not in env:
        env["MASTER_PORT"] = str(first + _number("SLURM_JOB_ID") % count)
    # Nodes may have fewer tasks than others. Then their tasks use fewer threads than they could.
    return Process(_number("SLURM_PROCID"), world, _number("SLURM_LOCALID"), -(-world // nodes))


def _number(name: str, default: str | None = None, least: int = 0, most: int = 2**31) -> int:
    """Return the whole number in the environment variable `name`. If it is not set, take `default`.

    Raise `UserError` if there is no default either, or if the text is not a whole number from `least` to
    `most`.
    """
    text = os.environ.get(name, default)
    if text is None:
        raise UserError(f"the launcher does not set {name}. Set it for each process.")
    if text.isascii() and text.isdecimal() and len(text) < 11 and least <= int(text) <= most:
        return int(text)
    raise UserError(f"{name} must be a whole number from {least:,} to {most:,} (got {text!r:.50}).")


def first_host(nodes: str) -> str:
    """Return the first host of a Slurm list of nodes: "node07" for "node[07-09,12],other3"."""
    return re.sub(r"\[(\d+)[^\]]*\]", r"\1", nodes).split(",")[0]


class LostContact(UserError):
    """Another process of the run has ended, cannot be reached, or does not answer in time."""


class Group:
    """The processes of a run. nccl sums tensors on GPUs, and gloo sends everything else. A single process
    sends nothing. Communication raises `LostContact` if it fails or takes too long."""

    def __init__(self, process: Process, device: torch.device, timeout: float) -> None:
        """Join the group, and wait for all ranks. The caller must `close` it.

        timeout: seconds to wait for other ranks in each communication. In `meet`, the limit is `PATIENCE`
            times longer. A single process waits for nobody and ignores it.

        Raise `UserError` if the ranks cannot meet.
        """
        self.process, self.device = process, device
        self._hosts: Any = None
        self._patient: Any = None
        self._pending: tuple[Any, Tensor] | None = None
        self._store: Any = None
        """The store through which ranks publish their activities."""

        self._doing = ""
        if process.world > 1:
            patience = timedelta(seconds=timeout)
            with self._in_contact():
                self._store = _meeting(process, device, timeout)
                dist.init_process_group(
                    "nccl" if is_gpu(device) else "gloo",
                    store=self._store,
                    rank=process.rank,
                    world_size=process.world,
                    timeout=2 * patience,  # waits on the host time out first
                    device_id=device if is_gpu(device) else None,
                )
                self._hosts = dist.new_group(backend="gloo", timeout=patience)
                # A rank other than 0 waits as long as its group allows, so a longer wait needs another group.
                self._patience = PATIENCE * patience
                self._patient = dist.new_group(backend="gloo", timeout=self._patience)
                self.busy("starting")

    def sum(self, tensor: Tensor, sent_as: torch.dtype | None = None) -> None:
        """Sum `tensor` over all ranks, in place. With a single process, do nothing.

        The ranks send it in the dtype `sent_as`, by default its own. All of them get the same bits.
        """
        if self.process.world > 1:
            message = tensor.to(sent_as or tensor.dtype)
            with self._in_contact():
                dist.all_reduce(message)
            if message is not tensor:
                tensor.copy_(message)

    def share_first(self, tensors: Iterable[Tensor]) -> None:
        """Copy the values of the first rank's `tensors` to the tensors of all ranks, in place."""
        if self.process.world > 1:
            with self._in_contact():
                for tensor in tensors:
                    dist.broadcast(tensor.detach(), src=0)  # without gradients

    def gather(self, value: Value) -> list[Value]:
        """Return the `value` of each rank, in order of rank, on all ranks. All ranks call this."""
        if self.process.world == 1:
            return [value]
        values: list[Any] = [None] * self.process.world
        with self._in_contact():
            dist.all_gather_object(values, value, group=self._hosts)
        return values

    def from_first(self, value: Value) -> Value:
        """Return the `value` of the first rank, on all ranks. All ranks call this."""
        if self.process.world == 1:
            return value
        holder = [value]
        with self._in_contact():
            dist.broadcast_object_list(holder, src=0, group=self._hosts)
        return holder[0]

    def agree(self, requests: int) -> int:
        """Send this rank's requests, 8 bits, and return the union of the requests that all ranks sent one
        step before.

        The result is a step late, so that no step waits for a message. It is 0 in the first step. All ranks
        call this once per step. A single process gets its own requests at once.
        """
        if self.process.world == 1:
            return requests
        # The next step waits for this message, when it has long arrived.
        bits = torch.tensor([requests], dtype=torch.uint8)
        with self._in_contact():
            work = dist.all_reduce(bits, op=dist.ReduceOp.BOR, group=self._hosts, async_op=True)
            before, self._pending = self._pending, (work, bits)
            if before is None:
                return 0
            before[0].wait()
        return int(before[1])

    def busy(self, doing: str) -> None:
        """Publish what this rank is `doing`, such as "validating", for errors of ranks that wait for it."""
        if self._store is not None and doing != self._doing:
            self._doing = doing
            with self._in_contact():
                self._store.set(f"nmt/doing/{self.process.rank}", doing)

    def meet(self, doing: str) -> None:
        """Publish what this rank is `doing`, and wait for all ranks, `PATIENCE` times as long as usual."""
        if self.process.world > 1:
            self.busy(doing)
            with self._in_contact():
                # The time is given again, since the first rank ignores that of the group and waits for 30
                # minutes.
                dist.monitored_barrier(self._patient, self._patience, wait_all_ranks=True)

    @contextmanager
    def _in_contact(self) -> Iterator[None]:
        """Turn a failed communication in the block into `LostContact`, which names what the ranks were doing.
        A lack of memory stays as it is."""
        try:
            yield
        except (RuntimeError, ValueError) as error:
            # A lack of memory is a RuntimeError too, which the trainer handles.
            if out_of_memory(error):
                raise
            process = self.process
            # A machine whose own name is 127.0.1.1 to itself gives the others an address that they cannot
            # reach.
            if (own := OWN_ADDRESS.search(str(error))) and process.local_world < process.world:
                raise LostContact(
                    f"process {process.rank} cannot reach another machine, whose name is {own[1]} to itself. "
                    "Set GLOO_SOCKET_IFNAME to the network interface on each machine, such as eth0."
                ) from error
            timed_out, missing = TIMED_OUT.search(str(error)), MISSING.search(str(error))
            problem = "waited too long for" if timed_out else "lost contact with"
            message = f"process {process.rank} {problem} the others"
            if missing:
                message += f", process {missing[1]} did not come"
            if activities := self._others():
                message += f" ({activities})"
            slow = " Raise training.rank_timeout if they are slow." if timed_out or missing else ""
            raise LostContact(f"{message}. Look at the last messages of the others.{slow}") from error

    def _others(self) -> str:
        """Return what this rank and the others were doing last, or "" if nothing is known about the
        others."""
        activities = []
        for rank in set(range(self.process.world)) - {self.process.rank}:
            with suppress(RuntimeError):  # the rank that hosts the store may have ended
                if self._store is not None and self._store.check([key := f"nmt/doing/{rank}"]):
                    activities.append(f"process {rank} was {self._store.get(key).decode()}")
        return f"this one was {self._doing}, {', '.join(activities)}" if activities else ""

    def close(self) -> None:
        """Leave the group, if there is more than one process."""
        if self.process.world > 1 and dist.is_initialized():
            dist.destroy_process_group()


def _meeting(process: Process, device: torch.device, timeout: float) -> Any:
    """Wait until all ranks have come to MASTER_ADDR and MASTER_PORT, and return the store that they share
    there.

    Raise `UserError` if they do not come within `timeout` seconds, if a variable is missing, if the port is
    in use, or if the ranks' devices cannot train together.
    """
    address, port = os.environ.get("MASTER_ADDR"), _number("MASTER_PORT", least=1, most=65_535)
    if not address:
        raise UserError("the launcher does not set MASTER_ADDR. Set it for each process.")
    future: Future[Any] = Future()

    def meet() -> None:
        try:
            limit = timedelta(seconds=timeout)
            store, _, _ = next(rendezvous("env://", process.rank, process.world, timeout=limit))
            future.set_result(_of_this_start(store, process, device, timeout))
        except Exception as error:
            future.set_exception(error)

    # The library's handshake has no timeout. A port that accepts and never answers kept a rank waiting for
    # 200 s.
    threading.Thread(target=meet, name="rendezvous", daemon=True).start()
    try:
        store = future.result(timeout + 1)  # the library's own error comes first, and says more
    except (TimeoutError, RuntimeError) as error:
        message = f"process {process.rank} could not meet the others at {address}:{port} in {timeout:g} s"
        if "EADDRINUSE" in str(error):
            message = f"port {port}, where the processes are to meet, is in use"
        raise UserError(
            f"{message}. Check MASTER_ADDR and MASTER_PORT, which all processes share."
        ) from error
    return store


def _of_this_start(store: Any, process: Process, device: torch.device, timeout: float) -> Any:
    """Wait for all ranks, and return the part of `store` that only the processes of this start use.

    torchrun keeps its store when it restarts processes, so the store still has the addresses of dead ones.
    Its count of restarts would not tell them apart, because it differs between machines. So each process
    writes a random name, and the first rank shares its own as the name of the part.

    Raise `UserError` on all ranks if their devices cannot train together.
    """
    own, gpu = uuid4().hex, gpu_identity(device)
    if process.first:
        others, deadline = range(1, process.world), time.monotonic() + timeout
        while not store.check([f"{own}/{rank}" for rank in others]):
            for rank in others:  # one of them may still have the entry of a dead process
                store.set(f"nmt/start/{store.get(f'nmt/rank/{rank}').decode()}", own)
            if time.monotonic() > deadline:
                raise TimeoutError
            time.sleep(POLL_SECONDS)
        gpus = [gpu, *(store.get(f"{own}/{rank}").decode() for rank in others)]
        store.set(f"{own}/problem", problem := _unlike(gpus))
        if problem:  # this process may host the store, and ends now
            with suppress(RuntimeError):
                store.wait([f"{own}/{rank}/read" for rank in others], timedelta(seconds=SECONDS_TO_READ))
        start = own
    else:
        store.set(f"nmt/rank/{process.rank}", own)
        start = store.get(f"nmt/start/{own}").decode()  # waits for the first rank
        store.set(f"{start}/{process.rank}", gpu)
        problem = store.get(f"{start}/problem").decode()
        # The first rank, which may host the store, waits for this before it ends.
        store.set(f"{start}/{process.rank}/read", "")
    if problem:
        raise UserError(problem)
    return PrefixStore(start, store)


def _unlike(gpus: Sequence[str]) -> str:
    """Return why the ranks cannot train together, or "" if they can: some have a CPU and others a GPU, or two
    share one GPU.

    `gpus` has for each rank the identity of its GPU, or "" if it uses a CPU.
    """
    if "" in gpus and any(gpus):
        cpu, other = gpus.index(""), next(rank for rank, gpu in enumerate(gpus) if gpu)
        return f"process {cpu} has a CPU, but process {other} has a GPU. Set --device to use the same."
    for rank, gpu in enumerate(gpus):
        if gpu and gpu in gpus[:rank]:
            problem = f"processes {gpus.index(gpu)} and {rank} share one GPU, {gpu}"
            return (
                f"{problem}. Use fewer --devices, or let Slurm give each task a GPU, as by --gpus-per-task=1."
            )
    return ""


def child_environments(devices: int, port: int) -> Sequence[dict[str, str]]:
    """Return torchrun's variables for each of `devices` processes, by rank. The processes meet at `port`."""
    shared = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(devices),
        "LOCAL_WORLD_SIZE": str(devices),
    }
    return [{**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(devices)]
