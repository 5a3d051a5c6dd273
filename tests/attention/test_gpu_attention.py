"""The fused kernels, on a GPU or in Triton's interpreter."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt_cli.attention import gpu_attention, plain_attention
from nmt_cli.attention.attention_options import Options
from nmt_cli.attention.groups import Groups, grouped, groups_of
from nmt_cli.attention.projections import Heads
from nmt_cli.ragged import Layout
from tests.attention.conftest import Batch, Differentiate, MakeBatch, fused_attend, stream_all
from tests.launches import Operations

DTYPES = [torch.float32, torch.float16]
SETTINGS: list[dict[str, Any]] = [
    {},
    {"causal": True},
    {"window": 1},
    {"window": 6},
    {"drop": 0.3},
    {"causal": True, "window": 6, "drop": 0.3},
]
SEVERAL_BLOCKS = {"window": 50, "drop": 0.1}
SHORT, LONG = [1, 4, 0, 3, 5, 17], [2, 0, 0, 9, 7, 33]
PLENTY = 227 << 10
"""Bytes of shared memory that a program may use on an H100."""

BORDERS = [15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129]


def in_both(cases: Sequence[Any]) -> list[tuple[Any, torch.dtype]]:
    """Return each case in fp32 and fp16. Without a GPU, only the first and the last one are in fp16, because
    Triton's interpreter is slow."""
    half = cases if torch.cuda.is_available() else [cases[0], *cases[1:][-1:]]
    return [*((case, torch.float32) for case in cases), *((case, torch.float16) for case in half)]


@pytest.fixture
def assert_earned(differentiate: Differentiate) -> Callable[..., None]:
    """Check that `fused` errs at most twice as much as plain PyTorch in the same dtype, and by 1e-5 of the
    largest number, since PyTorch may round luckily in fp32.

    It compares the output and the gradients with float64.
    """

    def check(batch: Batch, **settings: Any) -> None:
        exact = differentiate(plain_attention.attend, batch, torch.float64, **settings)
        plain = differentiate(plain_attention.attend, batch, **settings)
        ours = differentiate(fused_attend, batch, **settings)
        for name, right, theirs, mine in zip(("out", "dq", "dk", "dv"), exact, plain, ours, strict=True):
            assert mine.shape == theirs.shape and mine.dtype == theirs.dtype
            allowed = 2 * _largest(theirs - right) + 1e-5 * _largest(right)
            assert _largest(mine - right) <= allowed, f"{name}: {_largest(mine - right)} > {allowed}"

    return check


def _largest(x: Tensor) -> float:
    return float(x.abs().max()) if x.numel() else 0.0


@pytest.fixture
def seed(device: str) -> Tensor:
    return torch.tensor(-(1 << 40) - 3, device=device)


@pytest.mark.parametrize(("settings", "dtype"), in_both(SETTINGS), ids=str)
def test_self_attention_has_at_most_twice_the_error_of_plain_pytorch(
    settings: dict[str, Any],
    dtype: torch.dtype,
    device: str,
    seed: Tensor,
    random_ragged: MakeBatch,
    assert_earned: Callable[..., None],
) -> None:
    batch = random_ragged([3, 0, 7, 16, 17, 40], heads=3, dtype=dtype, device=device)
    assert_earned(batch, seed=seed, **settings)


@pytest.mark.usefixtures("streaming_only")
@pytest.mark.parametrize(
    ("heads", "settings", "dtype"),
    [*((1, *each) for each in in_both(SETTINGS)), *((2, *each) for each in in_both([SEVERAL_BLOCKS]))],
    ids=str,
)
def test_streamed_self_attention_has_at_most_twice_the_error_of_plain_pytorch(
    heads: int,
    settings: dict[str, Any],
    dtype: torch.dtype,
    device: str,
    seed: Tensor,
    random_ragged: MakeBatch,
    assert_earned: Callable[..., None],
) -> None:
    batch = random_ragged([1, 0, 130], heads=heads, dtype=dtype, device=device)
    assert_earned(batch, seed=seed, **settings)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("drop", [0.0, 0.3], ids=["kept", "dropped"])
@pytest.mark.parametrize("queries, keys", [(SHORT, LONG), (LONG, SHORT), ([3, 200], [140, 2])], ids=str)
def test_cross_attention_has_at_most_twice_the_error_of_plain_pytorch(
    queries: Sequence[int],
    keys: Sequence[int],
    drop: float,
    dtype: torch.dtype,
    device: str,
    seed: Tensor,
    random_ragged: MakeBatch,
    assert_earned: Callable[..., None],
) -> None:
    batch = random_ragged(queries, keys, heads=2, dtype=dtype, device=device)
    assert_earned(batch, drop=drop, seed=seed)


@pytest.mark.parametrize(("length", "dtype"), in_both(BORDERS), ids=str)
def test_segments_at_the_border_of_a_tile_err_no_more(
    length: int, dtype: torch.dtype, device: str, random_ragged: MakeBatch, assert_earned: Callable[..., None]
) -> None:
    assert_earned(random_ragged([length], heads=1, dtype=dtype, device=device), causal=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("d_k", "d_v"), [(8, 8), (24, 24), (40, 40), (64, 64), (128, 128), (256, 256), (8, 72), (96, 16)]
)
def test_heads_of_any_width_err_no_more(
    d_k: int,
    d_v: int,
    dtype: torch.dtype,
    device: str,
    random_ragged: MakeBatch,
    assert_earned: Callable[..., None],
) -> None:
    batch = random_ragged([3, 7, 20, 70], heads=1, d_k=d_k, d_v=d_v, dtype=dtype, device=device)
    assert_earned(batch, causal=True)


@pytest.mark.slow
@pytest.mark.parametrize("lengths", [[3, 16], [17, 40]], ids=["in a tile", "streamed"])
def test_one_head_of_512_channels_errs_no_more(
    lengths: list[int],
    device: str,
    seed: Tensor,
    random_ragged: MakeBatch,
    assert_earned: Callable[..., None],
) -> None:
    """Check the paper's largest head (row A of its Table 3) in half precision."""
    batch = random_ragged(lengths, heads=1, d_k=512, d_v=512, dtype=torch.float16, device=device)
    assert_earned(batch, causal=True, drop=0.1, seed=seed)


@pytest.mark.parametrize("heads", [1, 2, 3, 4, 5, 8])
def test_any_number_of_heads_shares_the_tiles_of_short_segments(
    heads: int, device: str, seed: Tensor, random_ragged: MakeBatch, assert_earned: Callable[..., None]
) -> None:
    batch = random_ragged([4, 8, 1], [2, 7, 3], heads=heads, dtype=torch.float32, device=device)
    assert_earned(batch, drop=0.5, seed=seed)


@pytest.mark.parametrize("settings", [{}, {"causal": True, "window": 20}, {"drop": 0.2}], ids=str)
def test_one_tile_and_streaming_give_the_same_results(
    settings: dict[str, Any],
    device: str,
    seed: Tensor,
    random_ragged: MakeBatch,
    differentiate: Differentiate,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batch = random_ragged([100, 3], heads=1, dtype=torch.float16, device=device)
    tile = differentiate(fused_attend, batch, seed=seed, **settings)
    assert gpu_attention.plan(groups_of(batch[1], batch[1]).counts.tolist(), 16, 2, PLENTY)[1] is None
    stream_all(monkeypatch)
    assert gpu_attention.plan(groups_of(batch[1], batch[1]).counts.tolist(), 16, 2, PLENTY)[0] == []
    streamed = differentiate(fused_attend, batch, seed=seed, **settings)
    exact = differentiate(plain_attention.attend, batch, torch.float64, seed=seed, **settings)
    plain = differentiate(plain_attention.attend, batch, seed=seed, **settings)
    for one, other, right, theirs in zip(tile, streamed, exact, plain, strict=True):
        assert _largest(one - other) <= 2 * _largest(theirs - right) + 1e-5 * _largest(right)


@pytest.mark.parametrize(
    ("lengths", "width", "element_size", "tiles", "blocks"),
    [
        ([], 64, 2, [], None),
        ([0, 0], 64, 2, [(1, 0, 64)], None),
        ([60, 4, 1], 64, 2, [(2, 0, 64)], None),
        ([5, 65, 5, 128], 64, 2, [(2, 0, 64), (2, 2, 128)], None),
        ([128], 64, 2, [(1, 0, 128)], None),
        ([17, 129, 9, 64], 64, 2, [(3, 0, 64)], (1, 3)),
        ([17, 129, 9, 64, 70], 128, 2, [(3, 0, 64)], (2, 3)),
        ([32, 33], 64, 4, [], (2, 0)),
    ],
)
def test_each_size_of_tile_that_has_groups_has_a_launch(
    lengths: list[int],
    width: int,
    element_size: int,
    tiles: list[tuple[int, ...]],
    blocks: tuple[int, int] | None,
) -> None:
    layout = Layout.of(lengths)
    planned, rest = gpu_attention.plan(groups_of(layout, layout).counts.tolist(), width, element_size, PLENTY)
    assert [(t.groups, t.options["first"], t.options["TILE"]) for t in planned] == tiles
    assert (rest and (rest.groups, rest.options["first"])) == blocks


def test_wide_heads_have_fewer_blocks_in_flight_on_a_gpu_with_less_shared_memory() -> None:
    counts = groups_of(layout := Layout.of([300]), layout).counts.tolist()
    stages = {}
    for width, shared in (64, 99 << 10), (128, 99 << 10), (128, 163 << 10), (256, 99 << 10):
        blocks = gpu_attention.plan(counts, width, 2, shared)[1]
        assert blocks
        stages[width, shared] = blocks.options["num_stages"]
    assert stages == {(64, 99 << 10): 3, (128, 99 << 10): 2, (128, 163 << 10): 3, (256, 99 << 10): 2}


@pytest.mark.parametrize("path", ["one tile", "streaming"])
@pytest.mark.parametrize(
    ("queries", "keys"), [([0, 0], [3, 1]), ([2, 5], [0, 0]), ([0], [0]), ([], []), ([3, 0], [0, 3])], ids=str
)
def test_a_query_without_keys_has_zeros_as_output_and_gradients(
    queries: list[int],
    keys: list[int],
    path: str,
    device: str,
    random_ragged: MakeBatch,
    differentiate: Differentiate,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if path == "streaming":
        stream_all(monkeypatch)
    batch = random_ragged(queries, keys, dtype=torch.float32, device=device)
    for result in differentiate(fused_attend, batch):
        assert torch.equal(result, torch.zeros_like(result))


@pytest.mark.parametrize("path", ["one tile", "streaming"])
def test_views_of_a_packed_projection_give_the_same_bits_as_copies(
    path: str, device: str, differentiate: Differentiate, monkeypatch: pytest.MonkeyPatch
) -> None:
    if path == "streaming":
        stream_all(monkeypatch)
    layout = Layout.of([3, 20]).to(device)
    packed = torch.randn(23, 3, 2, 8, generator=torch.Generator().manual_seed(1)).to(device)
    views = [packed[:, 0], packed[:, 1], packed.transpose(2, 3)[:, 2].contiguous().transpose(1, 2)]
    assert views[2].stride(-1) != 1
    copies = [view.contiguous() for view in views]

    def attend(q: Tensor, k: Tensor, v: Tensor) -> list[Tensor]:
        q, k, v = inputs = [x.detach().requires_grad_() for x in (q, k, v)]
        out = fused_attend(q, k, v, layout, layout, Options(causal=True))
        d_out = torch.arange(2.0, device=device)[:, None].expand(23, 2, 8)
        return [out, *torch.autograd.grad(out, inputs, d_out)]

    for ours, theirs in zip(attend(*views), attend(*copies), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("matrices", [1, 2], ids=["self", "cross"])
def test_the_gradient_of_a_packed_projection_is_written_in_one_piece(
    matrices: int, device: str, random_ragged: MakeBatch
) -> None:
    tensors, q, k = random_ragged([3, 20, 140], dtype=torch.float32, device=device)
    query, key, value = (x.detach().flatten(1) for x in tensors)
    packed = [torch.cat([query, key, value], 1)] if matrices == 1 else [query, torch.cat([key, value], 1)]
    packed = [x.requires_grad_() for x in packed]
    out = gpu_attention.attend_projected(packed, Heads(2, 16, 16), q, k, Options(causal=True))
    d_out = torch.randn(out.shape, generator=torch.Generator().manual_seed(2)).to(device)
    with Operations() as operations:
        actual = torch.autograd.grad(out, packed, d_out)
    assert not {"cat", "slice_backward", "split_with_sizes"} & {*operations.names}
    apart = torch.autograd.grad(fused_attend(*tensors, q, k, Options(causal=True)), tensors, d_out)
    assert torch.equal(torch.cat(actual, 1), torch.cat([x.flatten(1) for x in apart], 1))


def test_nothing_groups_a_batch_of_pairs_while_attending(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = grouped(Layout.of([3, 9])).to(device)
    target = grouped(Layout.of([5, 2]), source).to(device)
    monkeypatch.setattr(Groups, "of", None)
    heads = Heads(2, 8, 8)
    query, both = (torch.randn(tokens, width, device=device) for tokens, width in ((7, 16), (12, 32)))
    out = gpu_attention.attend_projected([query, both], heads, target, source)
    assert out.shape == (7, 2, 8)
    own = gpu_attention.attend_projected([torch.cat([both, both[:, :16]], 1)], heads, source, source)
    assert own.shape == (12, 2, 8)


def test_all_layers_of_a_kind_share_the_plan_of_a_batch(
    device: str, random_ragged: MakeBatch, differentiate: Differentiate, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, planned = gpu_attention.plan, list[bool]()

    def counted(*arguments: Any) -> Any:
        planned.append(True)
        return plan(*arguments)

    monkeypatch.setattr(gpu_attention, "plan", counted)
    batch = random_ragged([3, 4], dtype=torch.float32, device=device)
    for causal in (False, True, False, True):
        differentiate(fused_attend, batch, causal=causal)
    assert len(planned) == 2


def test_the_operators_keep_the_promises_of_custom_operators(
    device: str, seed: Tensor, random_ragged: MakeBatch
) -> None:
    tensors, q, _ = random_ragged([3, 0, 5], dtype=torch.float32, device=device)
    groups = groups_of(q, q)
    batch = [groups.counts, groups.ranges, q.mask_keys, q.segments, q.positions]
    rest = ([2, 16, 16], batch, True, 0, 0.1, seed)
    query, key, value = (x.detach().flatten(1) for x in tensors)
    for projections in ([torch.cat([query, key, value], 1)], [query, torch.cat([key, value], 1)]):
        torch.library.opcheck(torch.ops.nmt.attend, (projections, *rest))
        out, lse = torch.ops.nmt.attend(projections, *rest)
        torch.library.opcheck(torch.ops.nmt.attend_backward, (torch.ones_like(out), lse, projections, *rest))


def test_it_is_compiled_whole_and_once_for_batches_of_any_lengths(device: str, seed: Tensor) -> None:
    from torch._dynamo.testing import CompileCounterWithBackend

    def attend(packed: Tensor, layout: Layout) -> Tensor:
        q, k, v = packed.unbind(1)
        return fused_attend(q, k, v, layout, layout, Options(True, 0, 0.1, seed)).relu()

    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(attend, fullgraph=True, backend=counter, dynamic=True)
    for lengths in ([3, 0, 17, 5, 1, 70], [20, 4], [2] * 7):
        layout = grouped(Layout.of(lengths)).to(device)
        packed = torch.randn(sum(lengths), 3, 2, 8, device=device, requires_grad=True)
        ours, theirs = compiled(packed, layout), attend(packed, layout)
        assert torch.equal(ours, theirs)
        d_ours, d_theirs = (torch.autograd.grad(x.square().sum(), packed)[0] for x in (ours, theirs))
        assert torch.equal(d_ours, d_theirs)
    assert counter.frame_count == 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*script_method.* is deprecated:DeprecationWarning")  # PyTorch's own use
def test_inductors_code_around_it_gives_output_and_gradients_of_the_reference(
    device: str, seed: Tensor
) -> None:
    """Compile as training does on a GPU. Generated code computes the packed projection."""
    layout = grouped(Layout.of([3, 0, 17, 5])).to(device)
    torch.manual_seed(1)
    x, weight = (torch.randn(rows, 16, device=device).div_(4).requires_grad_() for rows in (25, 48))

    def attended(attend: Callable[..., Tensor]) -> Tensor:
        q, k, v = (x @ weight.mT).sin().view(25, 3, 2, 8).unbind(1)
        return attend(q, k, v, layout, layout, Options(True, 0, 0.1, seed))

    torch._dynamo.reset()
    compiled = torch.compile(lambda: attended(fused_attend), fullgraph=True, dynamic=True)
    results = []
    for out in (compiled(), attended(plain_attention.attend)):
        results.append([out.detach(), *torch.autograd.grad(out.square().sum(), (x, weight))])
    torch._dynamo.reset()
    for ours, theirs in zip(*results, strict=True):
        assert _largest(ours - theirs) < 1e-5 * (1 + _largest(theirs))
