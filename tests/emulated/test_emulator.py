"""The emulator itself: it computes what CUDA means and reports what CUDA punishes."""

from __future__ import annotations

import re

import pytest
import torch

from tests.emulated.emulator import BACKWARD, BODIES, FORWARD, HOST, EmulatorError, Memory, library, missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())
ORDERS = pytest.mark.parametrize("flags", [FORWARD, BACKWARD])


def run(body: str, args: list[int], *, threads: int = 32, grid: tuple[int, int, int] = (1, 1, 1), shared: int = 0,
        flags: int = FORWARD, params: str = "int* out", seconds: int = 120) -> None:  # fmt: skip
    """Compiles and launches a kernel of one function."""
    text = f'#include "cuh/device.cuh"\nusing namespace ddt;\nextern "C" __global__ void f({params}) {{\n{body}\n}}\n'
    library(text).launch("f", grid, threads, shared, args, flags, seconds)


def ints(count: int) -> torch.Tensor:
    return Memory().tensor((count,), torch.int32)


@ORDERS
def test_barriers_order_what_threads_write_and_read(flags: int) -> None:
    out = ints(96)
    run("__shared__ int room[96]; room[threadIdx.x] = threadIdx.x; __syncthreads();"
        "out[threadIdx.x] = room[95 - threadIdx.x];", [out.data_ptr()], threads=96, flags=flags)  # fmt: skip
    assert out.tolist() == list(range(95, -1, -1))


@ORDERS
def test_shuffles_and_votes(flags: int) -> None:
    out = ints(160)
    run("const int l = threadIdx.x;"
        "out[l] = __shfl_xor_sync(kAll, l, 5); out[32 + l] = __shfl_down_sync(kAll, l, 3, 8);"
        "out[64 + l] = __ballot_sync(kAll, l % 3 == 0); out[96 + l] = __shfl_sync(kAll, l * 10, 7, 16);"
        "out[128 + l] = l < 16 ? __shfl_up_sync(0xffffu, l, 1) : __any_sync(0xffff0000u, l == 20);",
        [out.data_ptr()], flags=flags)  # fmt: skip
    rows = out.view(5, 32).tolist()
    assert rows[0] == [lane ^ 5 for lane in range(32)]
    assert rows[1] == [lane + 3 if lane % 8 < 5 else lane for lane in range(32)]
    assert rows[2] == [sum(1 << lane for lane in range(0, 32, 3))] * 32
    assert rows[3] == [70] * 16 + [230] * 16
    assert rows[4] == [0, *range(15)] + [1] * 16


@ORDERS
def test_a_matrix_product_with_tiles_from_shared_memory(flags: int) -> None:
    """D = A B with A [16, 16] by load_tiles, B [16, 8] by load_tiles_transposed, both copied asynchronously."""
    memory = Memory()
    a, b = (torch.randn(n, 16, dtype=torch.bfloat16) for n in (16, 16))
    given = [memory.tensor(t.shape, torch.bfloat16).copy_(t) for t in (a, b)]
    out = memory.tensor((16, 16), torch.float32)
    run("""
  bf16* tile = reinterpret_cast<bf16*>(shared_bytes);
  const int l = threadIdx.x;
  copy_async16(tile + 8 * l, a + 8 * l);
  copy_commit();
  copy_async16(tile + 256 + 8 * l, b + 8 * l);
  copy_commit();
  copy_wait<0>();
  __syncthreads();
  u32 ra[4], rb[4];
  load_tiles(ra, tile + (l % 16) * 16 + l / 16 * 8);
  load_tiles_transposed(rb, tile + 256 + (l % 16) * 16 + l / 16 * 8);
  for (int half = 0; half < 2; ++half) {
    float d[4] = {0, 0, 0, 0};
    mma(d, ra[0], ra[1], ra[2], ra[3], rb[2 * half], rb[2 * half + 1]);
    for (int i = 0; i < 4; ++i) out[(l / 4 + i / 2 * 8) * 16 + half * 8 + l % 4 * 2 + i % 2] = d[i];
  }""", [t.data_ptr() for t in (*given, out)], shared=1024, flags=flags,
        params="const bf16* a, const bf16* b, float* out")  # fmt: skip
    torch.testing.assert_close(out, a.float() @ b.float(), rtol=1e-5, atol=1e-5)


def test_bfloat16_is_rounded_as_torch_rounds_it() -> None:
    memory = Memory()
    bits = torch.randint(-(2**31), 2**31, (4096,), dtype=torch.int64).to(torch.int32)
    x = memory.tensor((4096,), torch.int32).copy_(bits).view(torch.float32)
    y = memory.tensor((4096,), torch.bfloat16)
    run("for (int i = threadIdx.x; i < 4096; i += 32) y[i] = to_bf16(x[i]);", [x.data_ptr(), y.data_ptr()],
        params="const float* x, bf16* y")  # fmt: skip
    real = ~x.isnan()
    assert torch.equal(y[real], x.to(torch.bfloat16)[real])
    assert y[~real].isnan().all()


def test_a_pair_is_multiplied_and_added_with_one_rounding() -> None:
    memory = Memory()
    a, b, c = (torch.randn(64, dtype=torch.bfloat16) * s for s in (1.0, 1.0, 0.01))
    given = [memory.tensor((64,), torch.bfloat16).copy_(t) for t in (a, b, c)]
    y = memory.tensor((64,), torch.bfloat16)
    run("y[threadIdx.x] = fma_pair(a[threadIdx.x], b[threadIdx.x], c[threadIdx.x]);",
        [t.data_ptr() for t in (*given, y)], params="const u32* a, const u32* b, const u32* c, u32* y")  # fmt: skip
    assert torch.equal(y, (a.double() * b.double() + c.double()).to(torch.bfloat16))


@pytest.mark.parametrize(
    ("body", "threads", "message"),
    [
        ("if (threadIdx.x < 7) __syncthreads(); else __syncwarp(0xffffff80u); if (threadIdx.x == 9) __syncwarp();", 32,
         "hangs"),
        ("if (threadIdx.x < 7)\n__syncthreads();\nelse\n__syncthreads();", 32, "meet at different barriers"),
        ("if (threadIdx.x != 3) out[0] = __shfl_xor_sync(kAll, 1, 1);", 32, "hangs: 0 threads wait at a barrier, 31"),
        ("out[0] = __shfl_sync(1u << threadIdx.x, 1, 9);", 32, "a shuffle reads a lane that its mask does not name"),
        ("out[0] = __ballot_sync(1u, 1);", 32, "does not name the calling lane"),
        ("out[0] = __ballot_sync(kAll, 1);", 16, "names lanes that the block does not have"),
        ("out[4] = 1;", 32, "touches memory that is not its own"),
        ("out[1] = load16(out + 1).x;", 32, "load16: the address is no multiple of 16"),
        ("*reinterpret_cast<uint2*>(out + 1) = make_uint2(1, 2);", 32, "has not the alignment"),
        ("__shared__ int room[8]; room[threadIdx.x] = 1;", 32, "index 8 is outside of the array"),
        ("shared_bytes[4].x = 1;", 32, "writes shared memory 0 bytes behind the 64 it was launched with"),
        ("copy_async16(out, out);", 32, "the target is not shared memory"),
        ("while (atomicAdd(out, 0) >= 0) {}", 32, "runs longer than the limit"),
        ("out[0] = out[1] / (threadIdx.x / 32);", 32, "divides an integer by zero"),
    ],
)  # fmt: skip
def test_what_a_gpu_punishes_is_reported(body: str, threads: int, message: str) -> None:
    out = ints(4).zero_()
    with pytest.raises(EmulatorError, match=message):
        run(body, [out.data_ptr()], threads=threads, shared=64, seconds=1)


def test_shared_memory_is_garbage_before_every_block() -> None:
    out = ints(8)
    run("__shared__ int room; out[2 * blockIdx.x] = room; out[2 * blockIdx.x + 1] = shared_bytes[3].w;"
        "room = 5; shared_bytes[3].w = 6;", [out.data_ptr()], threads=1, grid=(4, 1, 1), shared=64)  # fmt: skip
    assert out.tolist() == [-1] * 8


def test_a_copy_arrives_no_sooner_than_its_wait_and_may_arrive_at_once() -> None:
    body = ("copy_async16(shared_bytes + threadIdx.x, in + threadIdx.x); copy_commit(); "
            "out[threadIdx.x] = shared_bytes[threadIdx.x].x; copy_wait<0>();")  # fmt: skip
    seen = []
    for flags in (FORWARD, BACKWARD):
        given, out = Memory().tensor((4,), torch.int32).fill_(7), ints(1)
        run(body, [given.data_ptr(), out.data_ptr()], threads=1, shared=16, flags=flags,
            params="const uint4* in, int* out")  # fmt: skip
        seen.append(int(out))
    assert seen == [-1, 7]


def test_the_host_header_has_every_name_of_the_device_header() -> None:
    """device.cuh is the only file that the emulator replaces: a kernel may use all of it."""
    name = re.compile(r"^(?:__device__ __forceinline__|inline) .*?(\w+)\(", re.MULTILINE)
    device, host = (set(name.findall((folder / "device.cuh").read_text())) for folder in (BODIES, HOST))
    assert len(device) > 15
    assert device <= host
