"""Ranks from the variables of torchrun and Slurm, and groups of one and two processes."""

import multiprocessing
import os
import socket
import time
from collections.abc import Callable
from contextlib import closing

import pytest
import torch

from nmt_cli.errors import UserError
from nmt_cli.training.step import distributed
from nmt_cli.training.step.distributed import (
    Group,
    Process,
    child_environments,
    first_host,
    process_from_environment,
)
from tests.checks import refusal

CPU = torch.device("cpu")
Test = Callable[..., None]


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    for name in (*names, *(name for name in os.environ if name.startswith("SLURM_"))):
        monkeypatch.delenv(name, raising=False)


def join(timeout: float) -> None:
    """Join the group that the environment describes, and leave it."""
    Group(process_from_environment(), CPU, timeout).close()


def setenv(monkeypatch: pytest.MonkeyPatch, **variables: str) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def test_without_a_launcher_one_process_is_alone_and_first() -> None:
    assert process_from_environment() == Process(rank=0, world=1, local_rank=0, local_world=1)
    assert process_from_environment().first


def test_torchrun_sets_the_rank_of_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    setenv(monkeypatch, RANK="9", WORLD_SIZE="16", LOCAL_RANK="1", LOCAL_WORLD_SIZE="8")
    assert process_from_environment() == Process(9, 16, 1, 8)
    assert not process_from_environment().first


def test_torchrun_has_priority_over_the_slurm_job_around_it(monkeypatch: pytest.MonkeyPatch) -> None:
    setenv(monkeypatch, RANK="3", WORLD_SIZE="4", LOCAL_RANK="1", LOCAL_WORLD_SIZE="2")
    setenv(monkeypatch, SLURM_PROCID="1", SLURM_NTASKS="2", SLURM_LOCALID="0")
    assert process_from_environment() == Process(3, 4, 1, 2)
    assert "MASTER_ADDR" not in os.environ


SLURM = {
    "SLURM_PROCID": "5",
    "SLURM_NTASKS": "8",
    "SLURM_LOCALID": "1",
    "SLURM_NNODES": "2",
    "SLURM_STEP_NODELIST": "gpu[07-08]",
    "SLURM_JOB_ID": "1234567",
}


def test_srun_sets_the_rank_of_a_process_and_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    setenv(monkeypatch, **SLURM)
    assert process_from_environment() == Process(5, 8, 1, 4)
    assert os.environ["MASTER_ADDR"] == "gpu07"
    assert os.environ["MASTER_PORT"] == str(29_500 + 567)


def test_an_address_and_port_that_are_set_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    setenv(monkeypatch, **SLURM, MASTER_ADDR="10.0.0.1", MASTER_PORT="4000")
    process_from_environment()
    assert (os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]) == ("10.0.0.1", "4000")


@pytest.mark.parametrize("changes", [{"SLURM_STEP_NODELIST": None}, {"SLURM_NTASKS": "1"}], ids=str)
def test_a_job_without_srun_or_of_one_task_is_one_process(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, str | None]
) -> None:
    setenv(monkeypatch, **{name: value for name, value in {**SLURM, **changes}.items() if value})
    assert process_from_environment() == Process()


TORCHRUN = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({**SLURM, "SLURM_PROCID": None}, "does not set SLURM_PROCID. Set it"),
        ({**SLURM, "SLURM_NTASKS": "²"}, "SLURM_NTASKS must be a whole number from 0 to .* (got '²')"),
        ({**SLURM, "SLURM_JOB_ID": "9" * 5000}, "SLURM_JOB_ID must be a whole number"),
        ({**TORCHRUN, "RANK": "x"}, "RANK must be a whole number from 0 to .* (got 'x')"),
        ({**TORCHRUN, "RANK": "2"}, "the rank of this process is 2, but there are only 2."),
        ({**TORCHRUN, "WORLD_SIZE": "0"}, "WORLD_SIZE must be a whole number from 1 to"),
        ({**TORCHRUN, "LOCAL_RANK": "-1"}, "LOCAL_RANK must be a whole number"),
        ({**TORCHRUN, "MASTER_PORT": "70000"}, "MASTER_PORT must be a whole number from 1 to 65,535"),
        ({**TORCHRUN, "MASTER_PORT": None}, "does not set MASTER_PORT. Set it"),
        ({**TORCHRUN, "MASTER_ADDR": None}, "does not set MASTER_ADDR. Set it"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_a_launchers_variable_that_is_missing_or_not_a_number_is_named(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str | None], message: str
) -> None:
    setenv(monkeypatch, **{name: value for name, value in variables.items() if value})
    error = refusal(join, 1.0)
    assert all(part in error for part in message.split(" .* "))


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("node7", "node7"),
        ("node7,other3", "node7"),
        ("node[07-09]", "node07"),
        ("node[07-09,12],other3", "node07"),
        ("node[3,5-6]", "node3"),
        ("a1,b[2-3]", "a1"),
        ("gpu-[001-100]-ib", "gpu-001-ib"),
        ("rack[1-2]node[3-4]", "rack1node3"),
        ("rack[1-2]node[3,5]", "rack1node3"),
        ("host.cluster.org", "host.cluster.org"),
    ],
)
def test_the_first_host_of_slurms_list(nodes: str, first: str) -> None:
    assert first_host(nodes) == first


def test_child_processes_read_their_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    processes = []
    for environment in child_environments(3, 4321):
        setenv(monkeypatch, **environment)
        processes.append(process_from_environment())
        assert (os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]) == ("127.0.0.1", "4321")
    assert processes == [Process(rank, 3, rank, 3) for rank in range(3)]


def test_one_process_alone_agrees_with_itself_at_once() -> None:
    with closing(Group(Process(), CPU, 1.0)) as group:
        assert group.gather("value") == ["value"]
        assert group.from_first("value") == "value"
        assert [group.agree(requests) for requests in (0, 5, 0)] == [0, 5, 0]
        tensor = torch.arange(3.0)
        group.sum(tensor)
        assert tensor.tolist() == [0, 1, 2]


def test_a_port_in_use_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        setenv(monkeypatch, **child_environments(2, port)[0])
        problem = f"port {port}, where the processes are to meet, is in use. Check"
        assert refusal(join, 5.0).startswith(problem)


def test_a_port_that_accepts_and_never_answers_ends_the_wait_and_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        port = deaf.getsockname()[1]
        setenv(monkeypatch, **child_environments(2, port)[1])
        problem = f"process 1 could not meet the others at 127.0.0.1:{port} in 0.5 s. Check"
        assert refusal(join, 0.5).startswith(problem)


def in_processes(test: Test) -> Test:
    """Mark a slow test that forks this process."""
    warning = "ignore:.*multi-threaded, use of fork:DeprecationWarning"
    marked: Test = pytest.mark.slow(pytest.mark.filterwarnings(warning)(test))
    return marked


def errors_of(*works: Callable[[Group], None]) -> list[str]:
    """Run `work` on each rank, a fork of this process. Return the errors, "" for none."""
    context = multiprocessing.get_context("fork")
    errors: multiprocessing.Queue[tuple[int, str]] = context.Queue()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    def work(rank: int) -> None:
        os.environ.update(child_environments(len(works), port)[rank])
        try:
            with closing(Group(Process(rank, len(works)), CPU, 1.0)) as group:
                works[rank](group)
            errors.put((rank, ""))
        except UserError as error:
            errors.put((rank, "; ".join(error.args)))

    processes = [context.Process(target=work, args=(rank,)) for rank in range(len(works))]
    for process in processes:
        process.start()
    actual = dict(errors.get(timeout=60) for _ in processes)
    for process in processes:
        process.join()
    return [actual[rank] for rank in range(len(works))]


@in_processes
@pytest.mark.parametrize(
    ("gpus", "message"),
    [
        ("AAB", "processes 0 and 1 share one GPU, A. Use fewer --devices, or let Slurm give each task a GPU"),
        ("ABB", "processes 1 and 2 share one GPU, B. Use fewer"),
        ("A B", "process 1 has a CPU, but process 0 has a GPU. Set --device to use the same."),
    ],
)
def test_ranks_whose_devices_do_not_fit_together_are_refused_before_nccl_starts(
    monkeypatch: pytest.MonkeyPatch, gpus: str, message: str
) -> None:
    own = lambda device: gpus[int(os.environ["RANK"])].strip()  # noqa: E731
    monkeypatch.setattr(distributed, "gpu_identity", own)
    errors = errors_of(*[lambda group: None] * 3)
    assert all(error.startswith(message) for error in errors)


REFUSED = "Gloo connectFullMesh failed: timed out connecting: Connection refused, remote=[127.0.1.1]:2454$0"


@pytest.mark.parametrize(
    ("local_world", "message"),
    [
        (
            1,
            "process 0 cannot reach another machine, whose name is 127.0.1.1 to itself. Set GLOO_SOCKET",
        ),
        (2, "process 0 waited too long for the others. Look"),
    ],
)
def test_a_machine_whose_name_is_its_own_address_is_told_from_a_slow_rank(
    monkeypatch: pytest.MonkeyPatch, local_world: int, message: str
) -> None:
    def refused(*_: object) -> None:
        raise RuntimeError(REFUSED)

    monkeypatch.setattr(distributed, "_meeting", refused)
    assert refusal(Group, Process(0, 2, 0, local_world), CPU, 1.0).startswith(message)


@in_processes
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_sums_in_bf16_are_rounded_and_equal_on_all_ranks(ranks: int) -> None:
    numbers = torch.randn(ranks, 1000, generator=torch.Generator().manual_seed(1))
    exact = numbers.double().sum(0)

    def work(group: Group) -> None:
        own, whole = numbers[group.process.rank].clone(), numbers[group.process.rank].clone()
        group.sum(own, torch.bfloat16)
        group.sum(whole)
        if own.dtype != torch.float32 or not all(torch.equal(own, other) for other in group.gather(own)):
            raise UserError("the ranks have different sums")
        # A number is rounded before each of its additions.
        allowed = ranks * 2.0**-8 * numbers.abs().sum(0)
        if ((own - exact).abs() > allowed).any() or ((whole - exact).abs() > 1e-5).any():
            raise UserError(f"off by {(own - exact).abs().max()} and {(whole - exact).abs().max()}")
        if torch.equal(own, whole):
            raise UserError("the sums are not rounded")

    assert errors_of(*[work] * ranks) == [""] * ranks


@in_processes
def test_a_rank_may_be_busy_for_longer_than_the_timeout_before_a_meeting() -> None:
    def busy(group: Group) -> None:
        group.busy("saving")
        time.sleep(3)
        group.meet("saving")

    assert errors_of(busy, lambda group: group.meet("saving")) == ["", ""]


@in_processes
def test_a_rank_that_waited_too_long_reports_the_other_ranks_activity() -> None:
    def busy(group: Group) -> None:
        group.busy("validating")
        time.sleep(4)

    def waiting(group: Group) -> None:
        group.busy("training")
        group.gather(1)

    errors = errors_of(waiting, busy)
    assert errors[0].startswith("process 0 waited too long for the others ")
    assert "this one was training, process 1 was validating" in errors[0]
    assert "Raise training.rank_timeout" in errors[0]


@in_processes
def test_a_rank_that_compiles_too_long_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def compiling(group: Group) -> None:
        group.busy("compiling")
        time.sleep(4)

    monkeypatch.setattr(distributed, "PATIENCE", 1)
    errors = errors_of(lambda group: group.meet("waiting"), compiling, lambda group: group.meet("waiting"))
    assert "the others, process 1 did not come (" in errors[0]
    assert "(this one was waiting, process 1 was compiling, process 2 was waiting)" in errors[0]
    assert "Raise training.rank_timeout" in errors[0]


@in_processes
def test_a_rank_that_cannot_publish_its_activity_has_lost_contact() -> None:
    def publish(group: Group) -> None:
        group.meet("starting")
        for number in range(100):  # the system may accept the first messages after the other rank ended
            group.busy(f"training {number}")
            time.sleep(0.05)

    message = "process 1 lost contact with the others. Look at the last messages of the others."
    assert errors_of(lambda group: group.meet("starting"), publish) == ["", message]
