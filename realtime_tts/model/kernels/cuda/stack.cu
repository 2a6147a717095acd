// A whole stack of decoder layers over a few rows, in one kernel that stays resident on the device's processors.
//
// One block per processor. Its last warp copies weights from the model's memory through a ring in shared memory. That
// warp waits for free slots, never for activations, so weights of later phases are loaded while other warps still
// compute. Eight warps compute. A layer is five phases (query-key-value, attention, output, gate-up, down). A phase's
// output tiles are distributed over the blocks in turn; blocks that need them wait at a counter until they are ready.
//
// Sums run in an order of their own row: what else is in the batch changes no bit. No headers: NVRTC builds this with
//   HIDDEN, FFN, HEADS, KV_HEADS  the stack's shape; heads of 128 values
//   TOKENS                        rows in tiles of eight
//   LENGTH                        rows of a sequence that sees itself; 0: rows of sequences in a paged cache
//   LATENT, PATCH, NUM_MU, SEPARATE_TIME   if LATENT: the DiT's flow loop around the stack

typedef unsigned short bf16;
typedef unsigned u32;
typedef unsigned long long u64;
typedef long long i64;

constexpr int HEAD_DIM = 128, GROUP = HEADS / KV_HEADS, WIDTH = (HEADS + 2 * KV_HEADS) * HEAD_DIM;
constexpr int WARPS = 8, THREADS = WARPS * 32;
constexpr int K_CHUNK = 1024, ROW_BYTES = K_CHUNK * 2 + 64;  // 64 bytes apart, eight rows are in eight banks
constexpr int SLOT_BYTES = 16 * ROW_BYTES, SLOTS = 5;  // as many as there is shared memory for
constexpr float SCORE_SCALE = 0.08838834764831845f;
constexpr int MAX_EVALUATIONS = 64, MAX_LAYERS = 64;
static_assert(HIDDEN % K_CHUNK == 0 && FFN % K_CHUNK == 0 && HEADS * HEAD_DIM % K_CHUNK == 0 && TOKENS <= 8, "shape");
// Registers are assigned to groups of four warps: the copying group gives its own to the computing ones if they need more.
#define DEALS_REGISTERS (LENGTH || TOKENS > 2)
constexpr int BLOCK_THREADS = THREADS + (DEALS_REGISTERS ? 128 : 32);
extern "C" __constant__ int block_threads = BLOCK_THREADS;

static_assert(LENGTH <= 16 && HEADS % KV_HEADS == 0, "shape");

// Read again in each phase, so that values derived from it are not kept in registers over all of them.
__device__ __forceinline__ int thread() {
  int index;
  asm volatile("mov.u32 %0,%%tid.x;" : "=r"(index));
  return index;
}

struct Layer {
  const bf16 *qkv, *o, *gate_up, *down, *gain_in, *gain_post;
};

struct Args {
  const Layer* layers;
  const bf16* x;          // [rows, HIDDEN], the input
  bf16 *h, *qkv, *heads, *inner;  // the output, and intermediate results between phases
  const float *cos, *sin;         // [LENGTH or rows, HEAD_DIM], the sine signed; null: no rotation
  u32* counter;                   // zero at the start and at the end
  i64 num_layers, rows;
  float eps, residual_scale;
#if LENGTH == 0
  bf16 *keys, *values;            // of the first layer: [blocks, block_size, KV_HEADS, HEAD_DIM]
  const i64 *slot_mapping, *sequences, *positions, *tables;
  i64 layer_stride, table_width, block_size;
  bf16* probed;                   // [rows, HEADS * HEAD_DIM]: one layer's queries, rotated
  i64 probed_layer;
#endif
#if LATENT
  const bf16 *mu, *times, *prefix;          // [streams, NUM_MU, HIDDEN], [evaluations, HIDDEN], [streams, PATCH, HIDDEN]
  const bf16 *in_weight, *in_bias, *gain_out, *out_weight, *out_bias;
  const float *noise, *cfg;                 // [streams, PATCH, LATENT], [streams]
  float *velocity, *out;                    // [2 * streams, PATCH, LATENT], [streams, PATCH, LATENT]
  i64 streams, evaluations;
  float deltas[MAX_EVALUATIONS];
#endif
};

// Results of other blocks are read through the L2 cache only, and in program order.
__device__ __forceinline__ uint4 fresh16(const bf16* p) {
  uint4 r;
  asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3},[%4];" : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "l"(p) : "memory");
  return r;
}
__device__ __forceinline__ bf16 fresh2(const bf16* p) {
  bf16 r;
  asm volatile("ld.global.cg.u16 %0,[%1];" : "=h"(r) : "l"(p) : "memory");
  return r;
}
__device__ __forceinline__ float fresh_float(const float* p) {
  float r;
  asm volatile("ld.global.cg.f32 %0,[%1];" : "=f"(r) : "l"(p) : "memory");
  return r;
}
__device__ __forceinline__ uint4 constant16(const bf16* p) {
  uint4 r;
  asm volatile("ld.global.nc.v4.u32 {%0,%1,%2,%3},[%4];" : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "l"(p));
  return r;
}

__device__ __forceinline__ float number(bf16 v) { return __uint_as_float((u32)v << 16); }
__device__ __forceinline__ float low(u32 v) { return __uint_as_float(v << 16); }
__device__ __forceinline__ float high(u32 v) { return __uint_as_float(v & 0xffff0000u); }
__device__ __forceinline__ u32 pair(float a, float b) {
  u32 r;
  asm("cvt.rn.bf16x2.f32 %0,%1,%2;" : "=r"(r) : "f"(b), "f"(a));
  return r;
}
__device__ __forceinline__ bf16 rounded(float a) { return (bf16)pair(a, 0.f); }
__device__ __forceinline__ u32 times(u32 a, u32 b) {
  u32 r;
  asm("mul.rn.bf16x2 %0,%1,%2;" : "=r"(r) : "r"(a), "r"(b));
  return r;
}
__device__ __forceinline__ uint4 times(uint4 a, uint4 b) {
  return make_uint4(times(a.x, b.x), times(a.y, b.y), times(a.z, b.z), times(a.w, b.w));
}
__device__ __forceinline__ float dot(u32 a, u32 b, float sum) { return fmaf(low(a), low(b), fmaf(high(a), high(b), sum)); }
__device__ __forceinline__ float dot(uint4 a, uint4 b, float sum) {
  return dot(a.x, b.x, dot(a.y, b.y, dot(a.z, b.z, dot(a.w, b.w, sum))));
}
__device__ __forceinline__ float over_warp(float v) {
#pragma unroll
  for (int lane = 16; lane; lane >>= 1) v += __shfl_xor_sync(~0u, v, lane);
  return v;
}
// c [16 × 8] += a [16 × 16] b [16 × 8]. Both operands may have their K permuted alike: 16 bytes a thread, as they lie in
// memory, make the fragments of two products.
__device__ __forceinline__ void multiply(float (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
    : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void multiply(float (&c)[4], uint4 a, uint4 a8, uint4 b) {
  multiply(c, a.x, a8.x, a.y, a8.y, b.x, b.y);
  multiply(c, a.z, a8.z, a.w, a8.w, b.z, b.w);
}

__device__ __forceinline__ u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void barrier_init(u64* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0],%1;" :: "r"(shared_address(barrier)), "r"(arrivals));
}
__device__ __forceinline__ void barrier_expect(u64* barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _,[%0],%1;" :: "r"(shared_address(barrier)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void barrier_arrive(u64* barrier) {
  asm volatile("mbarrier.arrive.shared.b64 _,[%0];" :: "r"(shared_address(barrier)) : "memory");
}
__device__ __forceinline__ void barrier_wait(u64* barrier, u32 parity) {
  asm volatile("{\n .reg .pred p;\n W: mbarrier.try_wait.parity.shared.b64 p,[%0],%1;\n @p bra D;\n bra W;\n D:\n}"
    :: "r"(shared_address(barrier)), "r"(parity) : "memory");
}
__device__ __forceinline__ void copy_in(void* to, const void* from, u32 bytes, u64* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0],[%1],%2,[%3];"
    :: "r"(shared_address(to)), "l"(from), "r"(bytes), "r"(shared_address(barrier)) : "memory");
}
// Barrier of the computing warps.
__device__ __forceinline__ void sync() { asm volatile("bar.sync 1, 256;" ::: "memory"); }

// Tiles whose sums over the warps are made together: each barrier of the warps costs as much as a tile.
constexpr int PARTIALS = TOKENS > 3 ? 2 : TOKENS > 1 ? 4 : 6;

struct __align__(128) Shared {
  char ring[SLOTS][SLOT_BYTES];
  float4 partial[PARTIALS][WARPS][TOKENS * 32];
  float squares[WARPS][TOKENS * 8];
  u64 full[SLOTS], empty[SLOTS];
  Layer layers[MAX_LAYERS];
#if LENGTH == 0
  float peak[2 * WARPS], total[2 * WARPS], mixed[2 * WARPS][HEAD_DIM];
#endif
#if LATENT
  float state[TOKENS * 8 / (2 * LENGTH)][PATCH * LATENT];  // of the maximum number of streams for these rows
  float dots[2][WARPS];
#endif
};
extern "C" __constant__ int shared_bytes = sizeof(Shared);

struct Ring {
  int slot = 0;
  u32 parity = 0;
  __device__ void next() {
    if (++slot == SLOTS) {
      slot = 0;
      parity ^= 1;
    }
  }
};

// The products of a layer. A tile is sixteen rows of the weights: eight, and eight more at a distance of `apart`.
enum Product { QKV, OUTPUT, GATE_UP, DOWN };
template <Product P> struct Shape;
template <> struct Shape<QKV> {  // each value with its partner in rotation, half a head away
  static constexpr int tiles = WIDTH / 16, chunks = HIDDEN / K_CHUNK, dealt = 0, apart = HEAD_DIM / 2;
  static __device__ int first(int tile) { return tile / 8 * HEAD_DIM + tile % 8 * 8; }
};
template <> struct Shape<OUTPUT> {
  static constexpr int tiles = HIDDEN / 16, chunks = HEADS * HEAD_DIM / K_CHUNK, dealt = Shape<QKV>::tiles, apart = 8;
  static __device__ int first(int tile) { return tile * 16; }
};
template <> struct Shape<GATE_UP> {  // each gate with its value
  static constexpr int tiles = FFN / 8, chunks = HIDDEN / K_CHUNK, dealt = Shape<OUTPUT>::dealt + Shape<OUTPUT>::tiles;
  static constexpr int apart = FFN;
  static __device__ int first(int tile) { return tile * 8; }
};
template <> struct Shape<DOWN> {
  static constexpr int tiles = HIDDEN / 16, chunks = FFN / K_CHUNK, dealt = Shape<GATE_UP>::dealt + Shape<GATE_UP>::tiles;
  static constexpr int apart = 8;
  static __device__ int first(int tile) { return tile * 16; }
};
template <Product P> __device__ __forceinline__ int first_tile() {
  const int blocks = gridDim.x, tile = (int)blockIdx.x - Shape<P>::dealt % blocks;
  return tile < 0 ? tile + blocks : tile;
}

// A counter of blocks that have finished their part of a phase. Only blocks with a part arrive, only those that go on
// wait.
struct Grid {
  u32* counter;
  u32 target = 0;
  __device__ void wait() const {
    if (thread() == 0) {
      u32 seen;
      do asm volatile("ld.acquire.gpu.global.u32 %0,[%1];" : "=r"(seen) : "l"(counter) : "memory");
      while (seen < target);
    }
    sync();
  }
  __device__ void arrive(bool took_part, int parts) {
    if (took_part) {
      sync();
      if (thread() == 0) asm volatile("red.release.gpu.global.add.u32 [%0],1;" :: "l"(counter) : "memory");
    }
    target += min(parts, (int)gridDim.x);
  }
};

struct Block {
  const Args& a;
  Shared& s;
  Ring ring;
  Grid grid;
};

template <Product P> __device__ __forceinline__ void product(Block& b, int layer, const bf16* x, const bf16* gain) {
  typedef Shape<P> S;
  constexpr int K = S::chunks * K_CHUNK;
  constexpr bool NORM = P == QKV || P == GATE_UP;
  // Chunks of activations in registers: all, if they serve several tiles; else as many as fit. (Two chunks of three tiles
  // were slower: the compiler ran out of registers, and the fence below waits for outstanding loads.)
  constexpr int ROOM = TOKENS > 2 ? 1 : 4 / TOKENS;
  constexpr int AHEAD = NORM || S::chunks < ROOM ? S::chunks : ROOM;
  constexpr int ITEMS = TOKENS * 32, AT_ONCE = THREADS / ITEMS > 1 ? THREADS / ITEMS : 1;
  constexpr int BATCH = P == GATE_UP || PARTIALS < AT_ONCE ? PARTIALS : AT_ONCE;
  const Args& a = b.a;
  Shared& s = b.s;
  int tile = first_tile<P>();
  const bool takes_part = tile < S::tiles;
  if (takes_part) {
    const int tid = thread(), warp = tid >> 5, lane = tid & 31, g = lane >> 2, t = lane & 3;
    const int column = warp * 128 + t * 8, rows = a.rows;
    uint4 v[AHEAD][TOKENS][4], scale[NORM ? S::chunks : 1][4];
    if (NORM)
#pragma unroll
      for (int c = 0; c < S::chunks; c++)
#pragma unroll
        for (int i = 0; i < 4; i++) scale[NORM ? c : 0][i] = constant16(gain + c * K_CHUNK + column + i * 32);
    b.grid.wait();
    const auto load = [&](int c) {
#pragma unroll
      for (int n = 0; n < TOKENS; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const int row = min(n * 8 + g, rows - 1);
          v[c % AHEAD][n][i] = fresh16(x + (i64)row * K + c * K_CHUNK + column + i * 32);
        }
    };
    bool is_first = true;
#pragma unroll 1
    for (; tile < S::tiles; tile += BATCH * gridDim.x) {
      // A thread's part once all sums of these tiles are there: two rows of two values each, at a time.
      const int token = tid % ITEMS / 32 * 8 + (tid & 3) * 2, member = (tid & 31) >> 2;
      float before[4], turn[2][2];
      if (P != GATE_UP && tile + tid / ITEMS * (int)gridDim.x < S::tiles) {
        const int n0 = S::first(tile + tid / ITEMS * (int)gridDim.x) + member, n1 = n0 + S::apart;
#pragma unroll
        for (int u = 0; u < 2; u++) {
          const int row = min(token + u, rows - 1);
          if (P != QKV) {
            const bf16* old = (P == OUTPUT && layer == 0 ? a.x : a.h) + (i64)row * HIDDEN;
            before[u] = number(fresh2(old + n0)), before[2 + u] = number(fresh2(old + n1));
          } else if (a.cos) {  // the sine without its sign, from a head's second half
            const int place = (LENGTH ? row % (LENGTH ? LENGTH : 1) : row) * HEAD_DIM;
            turn[u][0] = a.cos[place + n0 % HEAD_DIM], turn[u][1] = a.sin[place + n1 % HEAD_DIM];
          }
        }
      }
      int count = 0;
#pragma unroll 1
      for (; count < BATCH && tile + count * (int)gridDim.x < S::tiles; count++) {
        float sum[TOKENS][4], gram[TOKENS][4];
#pragma unroll
        for (int n = 0; n < TOKENS; n++) {
          sum[n][0] = sum[n][1] = sum[n][2] = sum[n][3] = 0;
          if (NORM) gram[n][0] = gram[n][1] = gram[n][2] = gram[n][3] = 0;
        }
        if (is_first || AHEAD < S::chunks)
#pragma unroll
          for (int c = 0; c < AHEAD; c++) load(c);
        if (NORM && is_first) {
          // Each row times itself: the sum of its squares is on the diagonal.
#pragma unroll
          for (int c = 0; c < AHEAD; c++)
#pragma unroll
            for (int n = 0; n < TOKENS; n++)
#pragma unroll
              for (int i = 0; i < 4; i++) {
                const uint4 w = v[c][n][i];
                multiply(gram[n], w.x, 0, w.y, 0, w.x, w.y);
                multiply(gram[n], w.z, 0, w.w, 0, w.z, w.w);
                v[c][n][i] = times(w, scale[NORM ? c : 0][i]);
              }
          if (g >> 1 == t)
#pragma unroll
            for (int n = 0; n < TOKENS; n++) s.squares[warp][n * 8 + g] = g & 1 ? gram[n][1] : gram[n][0];
        }
        is_first = false;
#pragma unroll
        for (int c = 0; c < S::chunks; c++) {
          barrier_wait(&s.full[b.ring.slot], b.ring.parity);
          const char* w = s.ring[b.ring.slot] + g * ROW_BYTES + column * 2;
#pragma unroll
          for (int i = 0; i < 4; i++) {
            const uint4 wa = *(const uint4*)(w + i * 64), wb = *(const uint4*)(w + 8 * ROW_BYTES + i * 64);
#pragma unroll
            for (int n = 0; n < TOKENS; n++) multiply(sum[n], wa, wb, v[c % AHEAD][n][i]);
          }
          // The slot's last read must be complete before the copy engine, with its separate order, refills it.
          asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
          __syncwarp();
          if (lane == 0) barrier_arrive(&s.empty[b.ring.slot]);
          b.ring.next();
          if (c + AHEAD < S::chunks) load(c + AHEAD);
        }
#pragma unroll
        for (int n = 0; n < TOKENS; n++)
          s.partial[count][warp][n * 32 + lane] = make_float4(sum[n][0], sum[n][1], sum[n][2], sum[n][3]);
      }
      sync();
#pragma unroll 1
      for (int item = tid; item < count * ITEMS; item += THREADS) {
        const int index = item / ITEMS, own = item % ITEMS, token = own / 32 * 8 + (tid & 3) * 2;
        const int n0 = S::first(tile + index * (int)gridDim.x) + member, n1 = n0 + S::apart;
        float r[4] = {0, 0, 0, 0};
#pragma unroll
        for (int z = 0; z < WARPS; z++) {
          const float4 f = s.partial[index][z][own];
          r[0] += f.x, r[1] += f.y, r[2] += f.z, r[3] += f.w;
        }
        if (NORM) {
          float q[2] = {0, 0};
#pragma unroll
          for (int z = 0; z < WARPS; z++) q[0] += s.squares[z][token], q[1] += s.squares[z][token + 1];
#pragma unroll
          for (int u = 0; u < 2; u++) {
            const float m = rsqrtf(q[u] / K + a.eps);
            r[u] *= m, r[2 + u] *= m;
          }
        }
#pragma unroll
        for (int u = 0; u < 2; u++) {
          const int row = token + u;
          if (row >= rows) continue;
          const float lo = r[u], hi = r[2 + u];
          if (P == GATE_UP) a.inner[(i64)row * FFN + n0] = rounded(lo / (1.f + __expf(-lo)) * hi);
          if (P == OUTPUT || P == DOWN) {
            a.h[(i64)row * HIDDEN + n0] = rounded(before[u] + a.residual_scale * lo);
            a.h[(i64)row * HIDDEN + n1] = rounded(before[2 + u] + a.residual_scale * hi);
          }
          if (P == QKV) {
            const int head = n0 / HEAD_DIM;
            const bool turns = a.cos && head < HEADS + KV_HEADS;
            const float cosine = turns ? turn[u][0] : 1.f, sine = turns ? turn[u][1] : 0.f;
            const bf16 y0 = rounded(lo * cosine - hi * sine), y1 = rounded(hi * cosine + lo * sine);
            bf16* to = a.qkv + (i64)row * WIDTH + n0;
#if LENGTH == 0
            if (head >= HEADS) {
              const int kv_head = (head - HEADS) % KV_HEADS;
              to = (head < HEADS + KV_HEADS ? a.keys : a.values) + layer * a.layer_stride;
              to += (a.slot_mapping[row] * KV_HEADS + kv_head) * HEAD_DIM + n0 % HEAD_DIM;
            } else if (layer == a.probed_layer) {
              bf16* probed = a.probed + (i64)row * HEADS * HEAD_DIM + n0;
              probed[0] = y0, probed[HEAD_DIM / 2] = y1;
            }
#endif
            to[0] = y0, to[HEAD_DIM / 2] = y1;
          }
        }
      }
      if (tile + BATCH * (int)gridDim.x < S::tiles) sync();  // before `partial` is written again
    }
  }
  b.grid.arrive(takes_part, S::tiles);
}

#if LENGTH
// One head of one sequence per warp, all in registers.
__device__ __forceinline__ void attend(Block& b, int) {
  const Args& a = b.a;
  const int warp = thread() >> 5, lane = thread() & 31, g = lane >> 2, t = lane & 3;
  const int tasks = (int)a.rows / LENGTH * HEADS;
  const bool takes_part = (int)blockIdx.x < tasks;
  if (takes_part) {
    b.grid.wait();
#pragma unroll 1
    for (int task = blockIdx.x + gridDim.x * warp; task < tasks; task += gridDim.x * WARPS) {
      const int sequence = task / HEADS, head = task % HEADS;
      const bf16* own = a.qkv + (i64)sequence * LENGTH * WIDTH;
      const auto row = [&](int index) { return own + min(index, LENGTH - 1) * WIDTH; };
      const int q = head * HEAD_DIM + t * 8, k = (HEADS + head / GROUP) * HEAD_DIM + t * 8;
      const int v = (HEADS + KV_HEADS + head / GROUP) * HEAD_DIM + g * 16;
      uint4 q0[4], q8[4], k0[4], k8[4];
#pragma unroll
      for (int i = 0; i < 4; i++) {
        q0[i] = fresh16(row(g) + q + i * 32), k0[i] = fresh16(row(g) + k + i * 32);
        q8[i] = fresh16(row(g + 8) + q + i * 32), k8[i] = fresh16(row(g + 8) + k + i * 32);
      }
      // Sixteen neighbouring values of four rows: as columns of sixteen products, one value each.
      uint4 v0[2], v1[2], v8[2], v9[2];
#pragma unroll
      for (int i = 0; i < 2; i++) {
        v0[i] = fresh16(row(2 * t) + v + i * 8), v1[i] = fresh16(row(2 * t + 1) + v + i * 8);
        v8[i] = fresh16(row(2 * t + 8) + v + i * 8), v9[i] = fresh16(row(2 * t + 9) + v + i * 8);
      }
      __syncwarp();  // makes the compiler issue all loads before it waits for some
      float low_keys[4] = {0, 0, 0, 0}, high_keys[4] = {0, 0, 0, 0};
#pragma unroll
      for (int i = 0; i < 4; i++) {
        multiply(low_keys, q0[i], q8[i], k0[i]);
        multiply(high_keys, q0[i], q8[i], k8[i]);
      }
      u32 p[2][2];  // of a row and of the eighth after it: weights of keys 2t, 2t + 1, and of those eight further
#pragma unroll
      for (int u = 0; u < 2; u++) {
        float w[4] = {low_keys[2 * u], low_keys[2 * u + 1], high_keys[2 * u], high_keys[2 * u + 1]};
        float peak = -1e30f, total = 0;
#pragma unroll
        for (int e = 0; e < 4; e++) {
          const bool inside = 2 * t + (e & 1) + (e & 2) * 4 < LENGTH;
          w[e] = inside ? w[e] * SCORE_SCALE : -1e30f;
          peak = fmaxf(peak, w[e]);
        }
        peak = fmaxf(peak, __shfl_xor_sync(~0u, peak, 1)), peak = fmaxf(peak, __shfl_xor_sync(~0u, peak, 2));
#pragma unroll
        for (int e = 0; e < 4; e++) w[e] = __expf(w[e] - peak), total += w[e];
        total += __shfl_xor_sync(~0u, total, 1), total += __shfl_xor_sync(~0u, total, 2);
        p[u][0] = pair(w[0] / total, w[1] / total), p[u][1] = pair(w[2] / total, w[3] / total);
      }
      bf16* out = a.heads + ((i64)sequence * LENGTH + g) * HEADS * HEAD_DIM + head * HEAD_DIM + t * 32;
      const auto mix = [&](u32 a0, u32 a1, u32 a8, u32 a9, u32 (&to)[2][2]) {  // two columns of values
        float even[4] = {0, 0, 0, 0}, odd[4] = {0, 0, 0, 0};
        const u32 low_rows = __byte_perm(a0, a1, 0x5410), high_rows = __byte_perm(a8, a9, 0x5410);
        multiply(even, p[0][0], p[1][0], p[0][1], p[1][1], low_rows, high_rows);
        multiply(odd, p[0][0], p[1][0], p[0][1], p[1][1], __byte_perm(a0, a1, 0x7632), __byte_perm(a8, a9, 0x7632));
#pragma unroll
        for (int u = 0; u < 2; u++) to[u][0] = pair(even[2 * u], odd[2 * u]), to[u][1] = pair(even[2 * u + 1], odd[2 * u + 1]);
      };
#pragma unroll
      for (int i = 0; i < 2; i++) {
        u32 x[2][2], y[2][2], z[2][2], w[2][2];
        mix(v0[i].x, v1[i].x, v8[i].x, v9[i].x, x);
        mix(v0[i].y, v1[i].y, v8[i].y, v9[i].y, y);
        mix(v0[i].z, v1[i].z, v8[i].z, v9[i].z, z);
        mix(v0[i].w, v1[i].w, v8[i].w, v9[i].w, w);
#pragma unroll
        for (int u = 0; u < 2; u++)
          if (g + 8 * u < LENGTH)
#pragma unroll
            for (int half = 0; half < 2; half++)
              *(uint4*)(out + u * 8 * HEADS * HEAD_DIM + half * 16 + i * 8) =
                make_uint4(x[u][half], y[u][half], z[u][half], w[u][half]);
      }
    }
  }
  b.grid.arrive(takes_part, tasks);
}
#else
// One head of one row per block; each half-warp takes every sixteenth position.
__device__ __forceinline__ void attend(Block& b, int layer) {
  const Args& a = b.a;
  Shared& s = b.s;
  const int tid = thread(), part = tid >> 4, lane = tid & 15, tasks = (int)a.rows * HEADS;
  const bool takes_part = (int)blockIdx.x < tasks;
  if (takes_part) {
    b.grid.wait();
    for (int task = blockIdx.x; task < tasks; task += gridDim.x) {
      const int row = task / HEADS, head = task % HEADS, end = (int)a.positions[row] + 1;
      const i64* table = a.tables + a.sequences[row] * a.table_width;
      const i64 own = layer * a.layer_stride + head / GROUP * HEAD_DIM + lane * 8;
      const uint4 q = fresh16(a.qkv + (i64)row * WIDTH + head * HEAD_DIM + lane * 8);
      float peak = -1e30f, total = 0, mixed[8] = {0, 0, 0, 0, 0, 0, 0, 0};
      for (int start = part; start < end; start += 64) {
        uint4 k[4], v[4];
        float score[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const int position = min(start + i * 16, end - 1), size = a.block_size;
          const i64 place = own + (table[position / size] * size + position % size) * (KV_HEADS * HEAD_DIM);
          k[i] = fresh16(a.keys + place), v[i] = fresh16(a.values + place);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) score[i] = dot(q, k[i], 0.f);
#pragma unroll
        for (int z = 8; z; z >>= 1)
#pragma unroll
          for (int i = 0; i < 4; i++) score[i] += __shfl_xor_sync(0xffffu << (tid & 16), score[i], z);
#pragma unroll
        for (int i = 0; i < 4; i++) {
          if (start + i * 16 >= end) continue;
          const float now = score[i] * SCORE_SCALE, next = fmaxf(peak, now), fade = __expf(peak - next), w = __expf(now - next);
          peak = next, total = total * fade + w;
          const u32* pairs = &v[i].x;
#pragma unroll
          for (int c = 0; c < 4; c++) {
            mixed[2 * c] = mixed[2 * c] * fade + w * low(pairs[c]);
            mixed[2 * c + 1] = mixed[2 * c + 1] * fade + w * high(pairs[c]);
          }
        }
      }
      if (lane == 0) s.peak[part] = peak, s.total[part] = total;
#pragma unroll
      for (int c = 0; c < 2; c++)
        *(float4*)&s.mixed[part][lane * 8 + c * 4] = make_float4(mixed[c * 4], mixed[c * 4 + 1], mixed[c * 4 + 2], mixed[c * 4 + 3]);
      sync();
      if (tid < HEAD_DIM / 2) {
        float most = -1e30f, sum = 0, x = 0, y = 0;
#pragma unroll
        for (int z = 0; z < 2 * WARPS; z++) most = fmaxf(most, s.peak[z]);
#pragma unroll
        for (int z = 0; z < 2 * WARPS; z++) {
          const float fade = __expf(s.peak[z] - most);
          sum += s.total[z] * fade, x += s.mixed[z][tid * 2] * fade, y += s.mixed[z][tid * 2 + 1] * fade;
        }
        *(u32*)(a.heads + (i64)row * HEADS * HEAD_DIM + head * HEAD_DIM + tid * 2) = pair(x / sum, y / sum);
      }
      sync();
    }
  }
  b.grid.arrive(takes_part, tasks);
}
#endif

__device__ __forceinline__ void layers(Block& b) {
#pragma unroll 1
  for (int layer = 0; layer < (int)b.a.num_layers; layer++) {
    const Layer& own = b.s.layers[layer];
    product<QKV>(b, layer, layer ? b.a.h : b.a.x, own.gain_in);
    attend(b, layer);
    product<OUTPUT>(b, layer, b.a.heads, nullptr);
    product<GATE_UP>(b, layer, b.a.h, own.gain_post);
    product<DOWN>(b, layer, b.a.inner, nullptr);
  }
}

#if LATENT
static_assert(LENGTH == NUM_MU + SEPARATE_TIME + 2 * PATCH && LATENT % 64 == 0 && HIDDEN % 256 == 0, "flow");
constexpr int VALUES = PATCH * LATENT, GIVEN = LENGTH - PATCH;

// The DiT's rows: mu (zero without guidance), time, previous patch, state. Eight columns per block. Each block has the
// state.
__device__ __forceinline__ void tokens(Block& b, int evaluation) {
  const Args& a = b.a;
  const int tid = thread(), streams = a.streams;
  const bf16* time = a.times + (i64)evaluation * HIDDEN;
#pragma unroll 1
  for (int first = blockIdx.x * 8; first < HIDDEN; first += gridDim.x * 8) {
#pragma unroll 1
    for (int index = tid; index < 2 * streams * GIVEN * 8; index += THREADS) {
      const int column = first + index % 8, row = index / 8 % GIVEN, sequence = index / 8 / GIVEN;
      const int stream = sequence % streams;
      bf16 value;
      if (row < NUM_MU) {
        value = sequence < streams ? a.mu[(i64)(stream * NUM_MU + row) * HIDDEN + column] : (bf16)0;
        if (!SEPARATE_TIME) value = rounded(number(value) + number(time[column]));
      } else if (SEPARATE_TIME && row == NUM_MU) {
        value = time[column];
      } else {
        value = a.prefix[(i64)(stream * PATCH + row - NUM_MU - SEPARATE_TIME) * HIDDEN + column];
      }
      a.h[(i64)(sequence * LENGTH + row) * HIDDEN + column] = value;
    }
    // Eight threads per product, each with eight values of the state.
#pragma unroll 1
    for (int index = tid >> 3; index < streams * PATCH * 8; index += THREADS / 8) {
      const int column = first + index % 8, row = index / 8 % PATCH, stream = index / 8 / PATCH;
      float sum = 0;
#pragma unroll 1
      for (int part = (tid & 7) * 8; part < LATENT; part += 64) {
        const uint4 w = constant16(a.in_weight + (i64)column * LATENT + part);
        const float* x = b.s.state[stream] + row * LATENT + part;
        sum = dot(w, make_uint4(pair(x[0], x[1]), pair(x[2], x[3]), pair(x[4], x[5]), pair(x[6], x[7])), sum);
      }
#pragma unroll
      for (int z = 4; z; z >>= 1) sum += __shfl_xor_sync(~0u, sum, z);
      if ((tid & 7) < 2) {
        const i64 place = (i64)((stream + (tid & 7) * streams) * LENGTH + GIVEN + row) * HIDDEN + column;
        a.h[place] = rounded(sum + number(a.in_bias[column]));
      }
    }
  }
  b.grid.arrive(blockIdx.x * 8 < HIDDEN, HIDDEN / 8);
}

// The last norm and the projection to latents, for the noisy patch's rows. One latent per block, one row per warp.
__device__ __forceinline__ void project(Block& b) {
  const Args& a = b.a;
  const int warp = thread() >> 5, lane = thread() & 31;
  const bool takes_part = blockIdx.x < LATENT;
  if (takes_part) {
    b.grid.wait();
#pragma unroll 1
    for (int latent = blockIdx.x; latent < LATENT; latent += gridDim.x)
#pragma unroll 1
      for (int row = warp; row < 2 * (int)a.streams * PATCH; row += WARPS) {
        const bf16* h = a.h + (i64)(row / PATCH * LENGTH + GIVEN + row % PATCH) * HIDDEN;
        float sum = 0, square = 0;
#pragma unroll
        for (int k = lane * 8; k < HIDDEN; k += 256) {
          const uint4 x = fresh16(h + k), gain = constant16(a.gain_out + k);
          const uint4 w = constant16(a.out_weight + (i64)latent * HIDDEN + k);
          square = dot(x, x, square), sum = dot(times(x, gain), w, sum);
        }
        sum = over_warp(sum), square = over_warp(square);
        if (lane == 0) a.velocity[row * LATENT + latent] = sum * rsqrtf(square / HIDDEN + a.eps) + number(a.out_bias[latent]);
      }
  }
  b.grid.arrive(takes_part, LATENT);
}

// Guidance (CFG-zero-star) and the Euler step; every block computes them for itself.
__device__ __forceinline__ void move(Block& b, float delta) {
  const Args& a = b.a;
  const int tid = thread(), warp = tid >> 5;
#pragma unroll 1
  for (int stream = 0; stream < (int)a.streams; stream++) {
    const float *with = a.velocity + stream * VALUES, *without = with + a.streams * VALUES;
    float product = 0, square = 0;
#pragma unroll 1
    for (int index = tid; index < VALUES; index += THREADS) {
      const float p = fresh_float(with + index), n = fresh_float(without + index);
      product += p * n, square += n * n;
    }
    product = over_warp(product), square = over_warp(square);
    if ((tid & 31) == 0) b.s.dots[0][warp] = product, b.s.dots[1][warp] = square;
    sync();
    product = square = 0;
#pragma unroll
    for (int z = 0; z < WARPS; z++) product += b.s.dots[0][z], square += b.s.dots[1][z];
    const float share = product / (square + 1e-8f), cfg = a.cfg[stream];
#pragma unroll 1
    for (int index = tid; index < VALUES; index += THREADS) {
      const float p = fresh_float(with + index), n = fresh_float(without + index) * share;
      b.s.state[stream][index] -= delta * (n + cfg * (p - n));
    }
    sync();
  }
}

__device__ __forceinline__ void solve(Block& b) {
  const Args& a = b.a;
  const bool has_state = blockIdx.x * 8 < HIDDEN;
  if (has_state)
    for (int index = thread(); index < (int)a.streams * VALUES; index += THREADS)
      b.s.state[index / VALUES][index % VALUES] = a.noise[index];
  sync();
#pragma unroll 1
  for (int evaluation = 0; evaluation < (int)a.evaluations; evaluation++) {
    if (evaluation && has_state) {
      b.grid.wait();
      move(b, a.deltas[evaluation - 1]);
    }
    tokens(b, evaluation);
    layers(b);
    project(b);
  }
  if (blockIdx.x == 0) {
    b.grid.wait();
    move(b, a.deltas[a.evaluations - 1]);
    for (int index = thread(); index < (int)a.streams * VALUES; index += THREADS)
      a.out[index] = b.s.state[index / VALUES][index % VALUES];
  }
}
#endif

struct Copier {
  Shared& s;
  Ring ring;
  bool is_full = false;

  template <Product P> __device__ __forceinline__ void copy(const bf16* weights) {
    typedef Shape<P> S;
    const int lane = thread() & 31;
    for (int tile = first_tile<P>(); tile < S::tiles; tile += gridDim.x) {
      const i64 row = S::first(tile) + (lane & 7) + (lane >> 3) * S::apart;
      for (int c = 0; c < S::chunks; c++) {
        if (is_full) barrier_wait(&s.empty[ring.slot], ring.parity ^ 1);
        if (lane == 0) barrier_expect(&s.full[ring.slot], 16 * K_CHUNK * 2);
        __syncwarp(0xffffu);
        const bf16* from = weights + (row * S::chunks + c) * K_CHUNK;
        copy_in(s.ring[ring.slot] + lane * ROW_BYTES, from, K_CHUNK * 2, &s.full[ring.slot]);
        ring.next();
        is_full = is_full || ring.slot == 0;
      }
    }
  }
};

__device__ __forceinline__ void copy_weights(const Args& a, Shared& s) {
  if ((thread() & 31) >= 16) return;
  Copier copier{s};
#if LATENT
  for (int evaluation = 0; evaluation < (int)a.evaluations; evaluation++)
#endif
    for (int layer = 0; layer < (int)a.num_layers; layer++) {
      const Layer& own = s.layers[layer];
      copier.copy<QKV>(own.qkv);
      copier.copy<OUTPUT>(own.o);
      copier.copy<GATE_UP>(own.gate_up);
      copier.copy<DOWN>(own.down);
    }
}

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1) stack(const __grid_constant__ Args a) {
  extern __shared__ __align__(1024) char memory[];
  Shared& s = *(Shared*)memory;
  for (int i = thread(); i < (int)a.num_layers * (int)(sizeof(Layer) / 8); i += BLOCK_THREADS)
    ((u64*)s.layers)[i] = ((const u64*)a.layers)[i];
  if (thread() == 0) {
    for (int i = 0; i < SLOTS; i++) {
      barrier_init(&s.full[i], 1);
      barrier_init(&s.empty[i], WARPS);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  if (thread() >= THREADS) {
#if DEALS_REGISTERS
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
#endif
    if (thread() < THREADS + 32) copy_weights(a, s);
  } else {
#if DEALS_REGISTERS
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
#endif
    Block b{a, s, Ring{}, Grid{a.counter}};
#if LATENT
    solve(b);
#else
    layers(b);
#endif
    if (blockIdx.x == 0) {  // all blocks have arrived for the last time
      b.grid.wait();
      if (thread() == 0) *a.counter = 0;
    }
  }
}
