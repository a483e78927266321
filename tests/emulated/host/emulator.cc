// Runs the blocks of a launch one after the other, the threads of a block as fibers of one OS thread.
//
// A fiber runs until it must wait for others (barrier, warp collective); then the next one in line runs. When none can,
// the launch has hung and is ended with a report instead. The same goes for bad addresses and endless loops.
#include <elf.h>
#include <link.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>

#include <vector>

namespace emulated {
struct Lane {
  unsigned in[16];
  unsigned out[8];
};
using Finish = void (*)(Lane* lanes, unsigned mask);
}  // namespace emulated

struct uint3 {
  unsigned x, y, z;
};
uint3 threadIdx, blockIdx, blockDim, gridDim;

namespace {

using emulated::Finish;
using emulated::Lane;

constexpr unsigned kMostThreads = 1024, kGuard = 4096, kStack = 128 * 1024, kCanary = 256;
constexpr unsigned char kGarbage = 0xff;  // NaN as a float, -1 as an integer
enum Flag : unsigned { kEarlyCopies = 1, kThreadsBackwards = 2, kBlocksBackwards = 4 };
enum class Wait { kNothing, kBarrier, kWarp, kEnded };

struct Copy {
  void* to;
  const void* from;
  bool valid;
  unsigned group;
};

struct Fiber {
  void* stack_pointer;
  Wait wait;
  const char* file;  // of the barrier
  int line;
  unsigned mask;
  Finish finish;
  unsigned groups;  // groups committed so far
  std::vector<Copy> copies;
};

struct Module {
  char* begin = nullptr;  // shared memory: the TLS segment of the kernel's library
  size_t size = 0;
  uintptr_t inside = 0;
};

Fiber fibers[kMostThreads];
Lane lanes[kMostThreads];
char* stacks = nullptr;
unsigned ready[kMostThreads], first_ready, ready_count;  // a ring
unsigned threads, alive, at_barrier, current, flags;
void* main_stack_pointer;
const void* kernel;
const uint64_t* arguments;
int argument_count;
char* dynamic_shared;
Module module;
char report[512];
bool failed;

}  // namespace

// Saves the callee's registers on the present stack, its pointer in *from, and goes on where `to` was saved.
extern "C" void emulated_switch(void** from, void* to);
asm(R"(
.text
.globl emulated_switch
.hidden emulated_switch
.type emulated_switch, @function
emulated_switch:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  ret
.size emulated_switch, .-emulated_switch
)");

namespace {

[[noreturn]] void end_launch() {
  void* dropped;
  emulated_switch(&dropped, main_stack_pointer);
  __builtin_unreachable();
}

[[noreturn]] void fail(const char* format, ...) {
  int at = snprintf(report, sizeof report, "block (%u, %u, %u), thread %u: ", blockIdx.x, blockIdx.y, blockIdx.z, current);
  va_list list;
  va_start(list, format);
  vsnprintf(report + at, sizeof report - at, format, list);
  va_end(list);
  failed = true;
  end_launch();
}

void make_ready(unsigned thread) {
  fibers[thread].wait = Wait::kNothing;
  ready[(first_ready + ready_count++) % kMostThreads] = thread;
}

unsigned in_order(unsigned n, unsigned count, Flag backwards) { return flags & backwards ? count - 1 - n : n; }

[[noreturn]] void report_hang() {
  unsigned warp = 0, example = 0;
  for (unsigned i = 0; i < threads; ++i)
    if (fibers[i].wait == Wait::kWarp) {
      if (!warp) example = i;
      ++warp;
    }
  if (warp)
    fail("hangs: %u threads wait at a barrier, %u in warp collectives (thread %u with mask %08x), %u have ended",
         at_barrier, warp, example, fibers[example].mask, threads - alive);
  fail("hangs: %u threads wait at a barrier, %u have ended", at_barrier, threads - alive);
}

void run_next() {
  if (!ready_count) report_hang();
  Fiber& from = fibers[current];
  current = ready[first_ready];
  first_ready = (first_ready + 1) % kMostThreads;
  --ready_count;
  threadIdx.x = current;
  if (&fibers[current] == &from) return;
  emulated_switch(&from.stack_pointer, fibers[current].stack_pointer);
}

void open_barrier() {
  if (!at_barrier || at_barrier < alive) return;
  const Fiber* one = nullptr;
  for (const Fiber* fiber = fibers; fiber < fibers + threads; ++fiber) {
    if (fiber->wait != Wait::kBarrier) continue;
    if (one && (fiber->line != one->line || strcmp(fiber->file, one->file)))
      fail("threads %d and %d meet at different barriers: %s:%d and %s:%d", static_cast<int>(one - fibers),
           static_cast<int>(fiber - fibers), one->file, one->line, fiber->file, fiber->line);
    one = fiber;
  }
  at_barrier = 0;
  for (unsigned n = 0; n < threads; ++n) {
    const unsigned i = in_order(n, threads, kThreadsBackwards);
    if (fibers[i].wait == Wait::kBarrier) make_ready(i);
  }
}

// Arguments are pointers and integers: each is one 64-bit slot in the System V calling convention.
void call_kernel() {
  uint64_t a[24] = {};
  memcpy(a, arguments, argument_count * sizeof *a);
  using U = uint64_t;
  reinterpret_cast<void (*)(U, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U)>(
      const_cast<void*>(kernel))(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13],
                                 a[14], a[15], a[16], a[17], a[18], a[19], a[20], a[21], a[22], a[23]);
}

void fiber_main() {
  call_kernel();
  fibers[current].wait = Wait::kEnded;
  --alive;
  open_barrier();
  if (!alive) end_launch();
  run_next();
  __builtin_unreachable();
}

void perform(const Copy& copy) {
  if (copy.valid)
    memcpy(copy.to, copy.from, 16);
  else
    memset(copy.to, 0, 16);
}

int find_module(dl_phdr_info* info, size_t, void* data) {
  Module* m = static_cast<Module*>(data);
  bool inside = false;
  size_t size = 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& head = info->dlpi_phdr[i];
    const uintptr_t begin = info->dlpi_addr + head.p_vaddr;
    if (head.p_type == PT_LOAD && m->inside >= begin && m->inside < begin + head.p_memsz) inside = true;
    if (head.p_type == PT_TLS) size = head.p_memsz;
  }
  if (!inside) return 0;
  m->begin = static_cast<char*>(info->dlpi_tls_data);
  m->size = size;
  return 1;
}

void run_block(unsigned shared) {
  memset(module.begin, kGarbage, dynamic_shared - module.begin);
  char* rest = dynamic_shared + 99 * 1024;
  memset(rest, kGarbage, module.begin + module.size - rest);
  memset(dynamic_shared, kGarbage, shared);
  const unsigned canary = shared + kCanary <= 99 * 1024 ? kCanary : 99 * 1024 - shared;
  memset(dynamic_shared + shared, 0xa5, canary);
  ready_count = first_ready = at_barrier = 0;
  alive = threads;
  for (unsigned n = 0; n < threads; ++n) {
    const unsigned i = in_order(n, threads, kThreadsBackwards);
    void** top = reinterpret_cast<void**>(stacks + static_cast<size_t>(i + 1) * kStack);
    *--top = nullptr;  // the stack of a function is 8 short of a multiple of 16
    *--top = reinterpret_cast<void*>(fiber_main);
    for (int r = 0; r < 6; ++r) *--top = nullptr;
    fibers[i].stack_pointer = top;
    fibers[i].groups = 0;
    fibers[i].copies.clear();
    make_ready(i);
  }
  current = ready[first_ready];
  first_ready = 1 % kMostThreads;
  --ready_count;
  threadIdx = {current, 0, 0};
  emulated_switch(&main_stack_pointer, fibers[current].stack_pointer);
  if (failed) return;
  for (unsigned i = 0; i < canary; ++i)
    if (static_cast<unsigned char>(dynamic_shared[shared + i]) != 0xa5) {
      snprintf(report, sizeof report, "block (%u, %u, %u) writes shared memory %u bytes behind the %u it was launched with",
               blockIdx.x, blockIdx.y, blockIdx.z, i, shared);
      failed = true;
      return;
    }
}

constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGVTALRM};

void on_signal(int number, siginfo_t* info, void*) {
  switch (number) {
    case SIGVTALRM: fail("runs longer than the limit: an endless loop?");
    case SIGFPE: fail("divides an integer by zero");
    case SIGILL: fail("executes an illegal instruction (reached code that should not be)");
    default: fail("touches memory that is not its own, at %p", info->si_addr);
  }
}

}  // namespace

extern "C" {

Lane* emulated_lane() { return lanes + current; }

[[noreturn]] void emulated_fail(const char* why) { fail("%s", why); }

bool emulated_is_shared(const void* p) {
  const char* at = static_cast<const char*>(p);
  return at >= module.begin && at < module.begin + module.size;
}

void emulated_meet(unsigned mask, Finish finish) {
  const unsigned base = current & ~31u;
  Fiber& me = fibers[current];
  if (!(mask >> (current - base) & 1)) fail("a warp collective whose mask %08x does not name the calling lane", mask);
  me.wait = Wait::kWarp;
  me.mask = mask;
  me.finish = finish;
  for (unsigned n = 0; n < 32; ++n) {
    // The lane that comes last is asked first, so that most calls look at one lane only.
    const unsigned lane = flags & kThreadsBackwards ? n : 31 - n;
    if (!(mask >> lane & 1)) continue;
    if (base + lane >= threads) fail("a warp collective with mask %08x names lanes that the block does not have", mask);
    const Fiber& other = fibers[base + lane];
    if (other.wait != Wait::kWarp || other.mask != mask || other.finish != finish) {
      run_next();
      return;
    }
  }
  finish(lanes + base, mask);
  me.wait = Wait::kNothing;
  for (unsigned n = 0; n < 32; ++n) {
    const unsigned lane = in_order(n, 32, kThreadsBackwards);
    if ((mask >> lane & 1) && base + lane != current) make_ready(base + lane);
  }
}

void emulated_barrier(const char* file, int line) {
  Fiber& me = fibers[current];
  me.wait = Wait::kBarrier;
  me.file = file;
  me.line = line;
  ++at_barrier;
  open_barrier();
  run_next();
}

void emulated_copy(void* to, const void* from, bool valid) {
  const Copy copy{to, from, valid, fibers[current].groups};
  if (flags & kEarlyCopies)
    perform(copy);
  else
    fibers[current].copies.push_back(copy);
}

void emulated_commit() { ++fibers[current].groups; }

void emulated_wait(int pending) {
  Fiber& me = fibers[current];
  size_t done = 0;
  while (done < me.copies.size() && me.copies[done].group + pending < me.groups) perform(me.copies[done++]);
  me.copies.erase(me.copies.begin(), me.copies.begin() + done);
}

// Fragments as templates/cuh/device.cuh says; sums in order of k, in float32. Most of the time of a test is spent here.
__attribute__((target_clones("avx2", "default"))) void emulated_mma(Lane* of, unsigned mask) {
  if (mask != ~0u) fail("mma: not the whole warp");
  float a[16][16];
  alignas(32) float b[16][8], d[16][8];
  const auto low = [](uint32_t pair) { return pair << 16; };
  const auto high = [](uint32_t pair) { return pair & 0xffff0000u; };
  const auto put = [](float& to, uint32_t bits) { memcpy(&to, &bits, 4); };
  for (int lane = 0; lane < 32; ++lane) {
    const unsigned* in = of[lane].in;
    const int g = lane / 4, t = lane % 4;
    for (int half = 0; half < 2; ++half) {
      const int k = 2 * t + 8 * half;
      put(a[g][k], low(in[2 * half]));
      put(a[g][k + 1], high(in[2 * half]));
      put(a[g + 8][k], low(in[2 * half + 1]));
      put(a[g + 8][k + 1], high(in[2 * half + 1]));
      put(b[k][g], low(in[4 + half]));
      put(b[k + 1][g], high(in[4 + half]));
      memcpy(&d[g + 8 * half][2 * t], in + 6 + 2 * half, 8);
    }
  }
  for (int i = 0; i < 16; ++i)
    for (int k = 0; k < 16; ++k)
      for (int n = 0; n < 8; ++n) d[i][n] += a[i][k] * b[k][n];
  for (int lane = 0; lane < 32; ++lane)
    for (int half = 0; half < 2; ++half) memcpy(of[lane].out + 2 * half, &d[lane / 4 + 8 * half][2 * (lane % 4)], 8);
}

// What -fsanitize=alignment,bounds calls; the record begins with the place in the source.
struct Place {
  const char* file;
  uint32_t line, column;
};
[[noreturn]] void __ubsan_handle_type_mismatch_v1_abort(Place* place, uintptr_t at) {
  fail("%s:%u: the address %p has not the alignment of what it is used as", place->file, place->line, (void*)at);
}
[[noreturn]] void __ubsan_handle_out_of_bounds_abort(Place* place, uintptr_t index) {
  fail("%s:%u: index %lld is outside of the array", place->file, place->line, (long long)index);
}

struct Launch {
  const void* kernel;
  void* dynamic_shared;
  const uint64_t* arguments;
  int32_t argument_count;
  uint32_t grid[3];
  uint32_t threads, shared, flags, seconds;
};

// Runs the launch; the report of what went wrong, or null.
const char* emulated_launch(const Launch* launch) {
  if (!stacks) {
    stacks = static_cast<char*>(mmap(nullptr, static_cast<size_t>(kMostThreads) * kStack, PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (stacks == MAP_FAILED) {
      stacks = nullptr;
      return "no memory for the stacks of the threads";
    }
    for (unsigned i = 0; i < kMostThreads; ++i) mprotect(stacks + static_cast<size_t>(i) * kStack, kGuard, PROT_NONE);
  }
  kernel = launch->kernel;
  arguments = launch->arguments;
  argument_count = launch->argument_count;
  dynamic_shared = static_cast<char*>(launch->dynamic_shared);
  threads = launch->threads;
  flags = launch->flags;
  module = Module{nullptr, 0, reinterpret_cast<uintptr_t>(kernel)};
  dl_iterate_phdr(find_module, &module);
  failed = false;
  gridDim = {launch->grid[0], launch->grid[1], launch->grid[2]};
  blockDim = {threads, 1, 1};

  static char signal_stack[64 * 1024];
  stack_t own{}, before{};
  own.ss_sp = signal_stack;
  own.ss_size = sizeof signal_stack;
  sigaltstack(&own, &before);
  struct sigaction action {}, old[5];
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  for (int i = 0; i < 5; ++i) sigaction(kSignals[i], &action, &old[i]);
  itimerval limit{};
  limit.it_value.tv_sec = launch->seconds;
  setitimer(ITIMER_VIRTUAL, &limit, nullptr);

  const unsigned blocks = gridDim.x * gridDim.y * gridDim.z;
  for (unsigned n = 0; n < blocks && !failed; ++n) {
    const unsigned i = in_order(n, blocks, kBlocksBackwards);
    blockIdx = {i % gridDim.x, i / gridDim.x % gridDim.y, i / gridDim.x / gridDim.y};
    run_block(launch->shared);
  }

  limit.it_value.tv_sec = 0;
  setitimer(ITIMER_VIRTUAL, &limit, nullptr);
  for (int i = 0; i < 5; ++i) sigaction(kSignals[i], &old[i], nullptr);
  sigaltstack(&before, nullptr);
  return failed ? report : nullptr;
}

}  // extern "C"
