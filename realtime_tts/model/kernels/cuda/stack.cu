// A whole stack of decoder layers over a few rows, in one kernel that stays resident on the device's processors.
//
// One block per processor. A warp of it copies weights from the model's memory through a ring in shared memory. That warp
// waits for free slots, never for activations, so weights of later phases are loaded while other warps still compute.
// Eight warps compute. A layer is five phases (query-key-value, attention, output, gate-up, down). A phase's
// output tiles are distributed over the blocks in turn.
//
// Blocks wait for a phase at a counter, without a fence: fences would take a sixth of the time. So a result may become
// visible after its count. Results are therefore written in units of 16 bytes over memory in which all bits are set, and a
// load is repeated until it returns something else. No result has all bits set: a rounded NaN is 0x7fff. Layers use SETS
// copies of this memory in turn. With a result, its writer sets the bits of the same place in the copy that was read two
// layers before and will be written two layers later. Meanwhile a warp without other work makes this visible to all blocks;
// in a paged stack the release that its cache needs in each layer does.
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
// A layer's results, each [rows, its width], one after the other.
constexpr int QKV_AT = 0, HEADS_AT = QKV_AT + WIDTH, MIDDLE_AT = HEADS_AT + HEADS * HEAD_DIM, INNER_AT = MIDDLE_AT + HIDDEN;
constexpr int END_AT = INNER_AT + FFN, LAYER_WIDTH = END_AT + HIDDEN;
constexpr int SETS = 4, CLEARED = 2;  // sets; layers from a clearing to the next results there
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
  bf16* x;                  // [rows, HIDDEN], the input; of a flow, written here
  bf16* h;                  // [rows, HIDDEN], the output; not of a flow
  bf16* results;            // [SETS, rows, LAYER_WIDTH] and a count of 32 bits, all bits set
  const float *cos, *sin;   // [LENGTH or rows, HEAD_DIM], the sine signed; null: no rotation
  u32* counter;             // zero at the start and at the end
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

// Results of other blocks are read through the L2 cache only, and in program order. Sixteen bytes are read and written
// at once.
__device__ __forceinline__ uint4 fresh16(const bf16* p) {
  uint4 r;
  asm volatile("{\n .reg .b128 v;\n .reg .b64 a, b;\n ld.relaxed.gpu.global.b128 v,[%4];\n mov.b128 {a,b},v;\n"
    " mov.b64 {%0,%1},a;\n mov.b64 {%2,%3},b;\n}" : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "l"(p) : "memory");
  return r;
}
__device__ __forceinline__ void store16(bf16* p, uint4 v) {
  asm volatile("{\n .reg .b128 v;\n .reg .b64 a, b;\n mov.b64 a,{%1,%2};\n mov.b64 b,{%3,%4};\n mov.b128 v,{a,b};\n"
    " st.relaxed.gpu.global.b128 [%0],v;\n}" :: "l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
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
// zero: known at run time only, and derived from what must be complete before.
__device__ __forceinline__ void barrier_arrive(u64* barrier, u32 zero) {
  asm volatile("mbarrier.arrive.shared.b64 _,[%0];" :: "r"(shared_address(barrier) + zero) : "memory");
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
  float squares[TOKENS * 8][WARPS];
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

// The products of a layer. A tile is sixteen rows of the weights: eight, and eight more at a distance of `apart`. Where
// there are fewer tiles than blocks, two blocks share one, each with half of the `tokens`.
constexpr int SHARED_BY = TOKENS > 1 ? 2 : 1, SHARE = (TOKENS + SHARED_BY - 1) / SHARED_BY;
enum Product { QKV, OUTPUT, GATE_UP, DOWN };
template <Product P> struct Shape;
template <> struct Shape<QKV> {  // each value with its partner in rotation, half a head away
  static constexpr int tiles = WIDTH / 16, chunks = HIDDEN / K_CHUNK, dealt = 0, apart = HEAD_DIM / 2;
  static constexpr int shared_by = 1, tokens = TOKENS;
  static __device__ int first(int tile) { return tile / 8 * HEAD_DIM + tile % 8 * 8; }
};
template <> struct Shape<OUTPUT> {
  static constexpr int tiles = SHARED_BY * HIDDEN / 16, chunks = HEADS * HEAD_DIM / K_CHUNK, dealt = Shape<QKV>::tiles;
  static constexpr int apart = 8, shared_by = SHARED_BY, tokens = SHARE;
  static __device__ int first(int tile) { return tile / SHARED_BY * 16; }
};
template <> struct Shape<GATE_UP> {  // each gate with its value
  static constexpr int tiles = FFN / 8, chunks = HIDDEN / K_CHUNK, dealt = Shape<OUTPUT>::dealt + Shape<OUTPUT>::tiles;
  static constexpr int apart = FFN, shared_by = 1, tokens = TOKENS;
  static __device__ int first(int tile) { return tile * 8; }
};
template <> struct Shape<DOWN> {
  static constexpr int tiles = SHARED_BY * HIDDEN / 16, chunks = FFN / K_CHUNK;
  static constexpr int dealt = Shape<GATE_UP>::dealt + Shape<GATE_UP>::tiles, apart = 8, shared_by = SHARED_BY, tokens = SHARE;
  static __device__ int first(int tile) { return tile / SHARED_BY * 16; }
};
template <Product P> __device__ __forceinline__ int first_tile() {
  const int blocks = gridDim.x, tile = (int)blockIdx.x - Shape<P>::dealt % blocks;
  return tile < 0 ? tile + blocks : tile;
}

// A counter of blocks that have finished their part of a phase. Only blocks with a part arrive, only those that go on wait.
// RELEASE: all that the blocks wrote is visible after the wait.
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
  template <bool RELEASE = false> __device__ void arrive(bool took_part, int parts) {
    if (took_part) {
      sync();
      if (thread() == 0) {
        if (RELEASE) asm volatile("red.release.gpu.global.add.u32 [%0],1;" :: "l"(counter) : "memory");
        else asm volatile("red.relaxed.gpu.global.add.u32 [%0],1;" :: "l"(counter) : "memory");
      }
    }
    target += min(parts, (int)gridDim.x);
  }
};

struct Block {
  const Args& a;
  Shared& s;
  Ring ring;
  Grid grid;
  int round;  // layers before this one, of all evaluations

  template <int AT> __device__ bf16* results(int later = 0) const {
    return a.results + ((round + later & SETS - 1) * LAYER_WIDTH + AT) * a.rows;
  }
};

__device__ __forceinline__ bool is_missing(uint4 v) { return v.w == ~0u; }
// Repeat loads until no result is missing.
template <int N, class From> __device__ __forceinline__ void complete(uint4 (&v)[N], const From& from) {
  while (true) {
    bool misses = false;
#pragma unroll
    for (int i = 0; i < N; i++) misses |= is_missing(v[i]);
    if (!__any_sync(~0u, misses)) break;
#pragma unroll
    for (int i = 0; i < N; i++) v[i] = fresh16(from(i));
  }
}

// Eight lanes (4 apart) have eight neighbouring values, each of two rows and in two places: half of the lanes get one
// row and one place of all eight. Return whether this lane does; row, place: which of both.
__device__ __forceinline__ bool gather(int lane, const float (&y)[2][2], uint4& v, int& row, int& place) {
  row = lane >> 2 & 1, place = lane >> 3 & 1;
  const u32 own = row ? pair(y[0][1], y[1][1]) : pair(y[0][0], y[1][0]);
  const u32 other = __shfl_xor_sync(~0u, row ? pair(y[0][0], y[1][0]) : pair(y[0][1], y[1][1]), 4);
  const u32 even = row ? other : own, odd = row ? own : other;
  const u32 first = __byte_perm(even, odd, 0x5410), second = __byte_perm(even, odd, 0x7632);
  const u32 neighbour = __shfl_xor_sync(~0u, place ? first : second, 8);
  v.x = place ? neighbour : first, v.y = place ? second : neighbour;
  v.z = __shfl_xor_sync(~0u, v.x, 16), v.w = __shfl_xor_sync(~0u, v.y, 16);
  return lane < 16;
}

template <Product P> __device__ __forceinline__ void product(Block& b, int layer, const bf16* gain) {
  typedef Shape<P> S;
  constexpr int K = S::chunks * K_CHUNK, N = S::tokens;
  constexpr bool NORM = P == QKV || P == GATE_UP;
  // Chunks of activations in registers: all, if they serve several tiles; else as many as fit.
  constexpr int ROOM = N > 2 ? 1 : 4 / N;
  constexpr int AHEAD = NORM || S::chunks < ROOM ? S::chunks : ROOM;
  constexpr int ITEMS = N * 32, AT_ONCE = THREADS / ITEMS > 1 ? THREADS / ITEMS : 1;
  constexpr int BATCH = P == GATE_UP || PARTIALS < AT_ONCE ? PARTIALS : AT_ONCE;
  const Args& a = b.a;
  Shared& s = b.s;
  int tile = first_tile<P>();
  const bool takes_part = tile < S::tiles;
  if (takes_part) {
    const bool is_given = P == QKV && layer == 0;  // the input, which is complete
    const bf16* x = is_given ? a.x : P == QKV ? b.results<END_AT>(-1) : P == OUTPUT ? b.results<HEADS_AT>()
      : P == GATE_UP ? b.results<MIDDLE_AT>() : b.results<INNER_AT>();
    const int tid = thread(), warp = tid >> 5, lane = tid & 31, g = lane >> 2, t = lane & 3;
    const int column = warp * 128 + t * 8, rows = a.rows;
    uint4 v[AHEAD][4 * N], scale[NORM ? S::chunks : 1][4];
    if (NORM)
#pragma unroll
      for (int c = 0; c < S::chunks; c++)
#pragma unroll
        for (int i = 0; i < 4; i++) scale[NORM ? c : 0][i] = constant16(gain + c * K_CHUNK + column + i * 32);
    // Rows of a block: [begin(tile), end(tile)).
    const auto begin = [&](int tile) { return S::shared_by == 1 ? 0 : tile % S::shared_by * ((rows + 1) / 2); };
    const auto end = [&](int tile) { return S::shared_by == 1 ? rows : min(rows, (tile % S::shared_by + 1) * ((rows + 1) / 2)); };
    const bf16* line[N] = {};
    const auto from = [&](int c, int index) { return line[index % N] + c * K_CHUNK + index / N * 32; };
    if (LATENT || !is_given) b.grid.wait();
    bool is_first = true;
#pragma unroll 1
    for (; tile < S::tiles; tile += BATCH * gridDim.x) {
      // A thread's part once all sums of these tiles are there: two rows of two values each, at a time.
      const int tile0 = tile + tid / ITEMS * (int)gridDim.x;
      const int token = begin(tile0) + tid % ITEMS / 32 * 8 + (tid & 3) * 2, member = (tid & 31) >> 2;
      float before[4], turn[2][2];
      if (P != GATE_UP && tile0 < S::tiles) {
        const int n0 = S::first(tile0) + member, n1 = n0 + S::apart;
#pragma unroll
        for (int u = 0; u < 2; u++) {
          const int row = min(token + u, rows - 1);
          if (P != QKV) {  // complete: what is multiplied derives from all of it
            const bf16* old = P == DOWN ? b.results<MIDDLE_AT>() : layer ? b.results<END_AT>(-1) : a.x;
            old += (i64)row * HIDDEN;
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
        float sum[N][4], gram[N][4];
#pragma unroll
        for (int n = 0; n < N; n++) {
          sum[n][0] = sum[n][1] = sum[n][2] = sum[n][3] = 0;
          if (NORM) gram[n][0] = gram[n][1] = gram[n][2] = gram[n][3] = 0;
        }
        if (is_first || !NORM) {
          const int own = tile + count * (int)gridDim.x, first = begin(own) + g, last = end(own) - 1;
#pragma unroll
          for (int n = 0; n < N; n++) line[n] = x + (i64)min(first + n * 8, last) * K + column;
#pragma unroll
          for (int c = 0; c < AHEAD; c++)
#pragma unroll
            for (int index = 0; index < 4 * N; index++) v[c][index] = fresh16(from(c, index));
        }
        if (NORM && is_first) {
          if (!is_given)
#pragma unroll
            for (int c = 0; c < AHEAD; c++) complete(v[c], [&](int index) { return from(c, index); });
          // Each row times itself: the sum of its squares is on the diagonal.
#pragma unroll
          for (int c = 0; c < AHEAD; c++)
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
              for (int i = 0; i < 4; i++) {
                const uint4 w = v[c][i * N + n];
                multiply(gram[n], w.x, 0, w.y, 0, w.x, w.y);
                multiply(gram[n], w.z, 0, w.w, 0, w.z, w.w);
                v[c][i * N + n] = times(w, scale[NORM ? c : 0][i]);
              }
          if (g >> 1 == t)
#pragma unroll
            for (int n = 0; n < N; n++) s.squares[n * 8 + g][warp] = g & 1 ? gram[n][1] : gram[n][0];
        }
        is_first = false;
#pragma unroll
        for (int c = 0; c < S::chunks; c++) {
          if (!NORM) complete(v[c % AHEAD], [&](int index) { return from(c, index); });
          barrier_wait(&s.full[b.ring.slot], b.ring.parity);
          const char* w = s.ring[b.ring.slot] + g * ROW_BYTES + column * 2;
          u32 read = 0;
#pragma unroll
          for (int i = 0; i < 4; i++) {
            const uint4 wa = *(const uint4*)(w + i * 64), wb = *(const uint4*)(w + 8 * ROW_BYTES + i * 64);
            read ^= wa.w ^ wb.w;
#pragma unroll
            for (int n = 0; n < N; n++) {
              multiply(sum[n], wa, wb, v[c % AHEAD][i * N + n]);
              if (c + AHEAD < S::chunks) v[c % AHEAD][i * N + n] = fresh16(from(c + AHEAD, i * N + n));
            }
          }
          // Reads of the slot must be complete before the copy engine, with its separate order, refills it. A fence would
          // wait for the loads above as well.
          __syncwarp();
          if (lane == 0) barrier_arrive(&s.empty[b.ring.slot], read & (u32)((u64)a.rows >> 32));
          b.ring.next();
        }
        if (count == 0) sync();  // before `partial` is written again
#pragma unroll
        for (int n = 0; n < N; n++)
          s.partial[count][warp][n * 32 + lane] = make_float4(sum[n][0], sum[n][1], sum[n][2], sum[n][3]);
      }
      sync();
#pragma unroll 1
      for (int item = tid; item < count * ITEMS; item += THREADS) {
        const int index = item / ITEMS, own = item % ITEMS, tile1 = tile + index * (int)gridDim.x;
        const int token = begin(tile1) + own / 32 * 8 + (tid & 3) * 2, n0 = S::first(tile1) + member;
        float r[4] = {0, 0, 0, 0};
#pragma unroll
        for (int z = 0; z < WARPS; z++) {
          const float4 f = s.partial[index][z][own];
          r[0] += f.x, r[1] += f.y, r[2] += f.z, r[3] += f.w;
        }
        if (NORM) {
#pragma unroll
          for (int u = 0; u < 2; u++) {
            float q = 0;
#pragma unroll
            for (int z = 0; z < WARPS; z++) q += s.squares[token + u][z];
            const float m = rsqrtf(q / K + a.eps);
            r[u] *= m, r[2 + u] *= m;
          }
        }
        float y[2][2];  // by place and row
#pragma unroll
        for (int u = 0; u < 2; u++) {
          const float lo = r[u], hi = r[2 + u];
          if (P == GATE_UP) y[0][u] = __fdividef(lo, 1.f + __expf(-lo)) * hi, y[1][u] = 0.f;
          if (P == OUTPUT || P == DOWN)
            y[0][u] = before[u] + a.residual_scale * lo, y[1][u] = before[2 + u] + a.residual_scale * hi;
          if (P == QKV) {
            const bool turns = a.cos && n0 / HEAD_DIM < HEADS + KV_HEADS;
            const float cosine = turns ? turn[u][0] : 1.f, sine = turns ? turn[u][1] : 0.f;
            y[0][u] = lo * cosine - hi * sine, y[1][u] = hi * cosine + lo * sine;
          }
        }
        uint4 result;
        int row, place;
        if (!gather(tid & 31, y, result, row, place) || (P == GATE_UP && place)) continue;
        row += token;
        if (row >= end(tile1)) continue;
        const int n = S::first(tile1) + place * S::apart;
        bf16 *to, *cleared = nullptr;
        if (P == QKV) {
          to = b.results<QKV_AT>() + (i64)row * WIDTH + n;
          cleared = b.results<QKV_AT>(CLEARED) + (i64)row * WIDTH + n;
#if LENGTH == 0
          const int head = n / HEAD_DIM;
          if (head >= HEADS) {
            to = (head < HEADS + KV_HEADS ? a.keys : a.values) + layer * a.layer_stride;
            to += (a.slot_mapping[row] * KV_HEADS + (head - HEADS) % KV_HEADS) * HEAD_DIM + n % HEAD_DIM;
          } else if (layer == a.probed_layer) {
            store16(a.probed + (i64)row * HEADS * HEAD_DIM + n, result);
          }
          cleared = nullptr;  // these are read behind the counter
#endif
        } else if (P == GATE_UP) {
          to = b.results<INNER_AT>() + (i64)row * FFN + n, cleared = b.results<INNER_AT>(CLEARED) + (i64)row * FFN + n;
        } else if (P == OUTPUT) {
          to = b.results<MIDDLE_AT>() + (i64)row * HIDDEN + n;
          cleared = b.results<MIDDLE_AT>(CLEARED) + (i64)row * HIDDEN + n;
        } else {
          to = (!LATENT && layer + 1 == a.num_layers ? a.h : b.results<END_AT>()) + (i64)row * HIDDEN + n;
          cleared = b.results<END_AT>(CLEARED) + (i64)row * HIDDEN + n;
        }
        store16(to, result);
        if (cleared) store16(cleared, make_uint4(~0u, ~0u, ~0u, ~0u));
      }
    }
  }
  b.grid.arrive<P == QKV && LENGTH == 0>(takes_part, S::tiles);
}

#if LENGTH
// One head of one sequence per warp, all in registers.
__device__ __forceinline__ void attend(Block& b, int) {
  const Args& a = b.a;
  const int warp = thread() >> 5, lane = thread() & 31, g = lane >> 2, t = lane & 3;
  const int tasks = 2 * ((int)a.rows / LENGTH * HEADS);
  if ((int)blockIdx.x < tasks) b.grid.wait();
#pragma unroll 1
  for (int task = blockIdx.x + gridDim.x * warp; task < tasks; task += gridDim.x * WARPS) {
    const int half = task % 2, sequence = task / 2 / HEADS, head = task / 2 % HEADS;
    const bf16* own = b.results<QKV_AT>() + (i64)sequence * LENGTH * WIDTH;
    const int key_head = HEADS + head / GROUP, value_head = key_head + KV_HEADS;
    // Queries of two rows and keys of both; then eight neighbouring values of four rows: as columns of eight products, one
    // value each.
    const auto row = [&](int index) { return own + min(index, LENGTH - 1) * WIDTH; };
    const auto from = [&](int index) {
      if (index >= 16) return row(2 * t + index % 2 + index / 2 % 2 * 8) + value_head * HEAD_DIM + g * 16 + half * 8;
      return row(g + index / 8 * 8) + (index / 4 % 2 ? key_head : head) * HEAD_DIM + t * 8 + index % 4 * 32;
    };
    uint4 f[20];
#pragma unroll
    for (int index = 0; index < 20; index++) f[index] = fresh16(from(index));
    complete(f, from);
    const uint4 *q0 = f, *k0 = f + 4, *q8 = f + 8, *k8 = f + 12;
    const uint4 v0 = f[16], v1 = f[17], v8 = f[18], v9 = f[19];
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
      const float share = __fdividef(1.f, total);
      p[u][0] = pair(w[0] * share, w[1] * share), p[u][1] = pair(w[2] * share, w[3] * share);
    }
    const i64 place = ((i64)sequence * LENGTH + g) * HEADS * HEAD_DIM + head * HEAD_DIM + t * 32 + half * 8;
    const auto mix = [&](u32 a0, u32 a1, u32 a8, u32 a9, u32 (&to)[2][2]) {  // two columns of values
      float even[4] = {0, 0, 0, 0}, odd[4] = {0, 0, 0, 0};
      const u32 low_rows = __byte_perm(a0, a1, 0x5410), high_rows = __byte_perm(a8, a9, 0x5410);
      multiply(even, p[0][0], p[1][0], p[0][1], p[1][1], low_rows, high_rows);
      multiply(odd, p[0][0], p[1][0], p[0][1], p[1][1], __byte_perm(a0, a1, 0x7632), __byte_perm(a8, a9, 0x7632));
#pragma unroll
      for (int u = 0; u < 2; u++) to[u][0] = pair(even[2 * u], odd[2 * u]), to[u][1] = pair(even[2 * u + 1], odd[2 * u + 1]);
    };
    u32 x[2][2], y[2][2], z[2][2], w[2][2];
    mix(v0.x, v1.x, v8.x, v9.x, x), mix(v0.y, v1.y, v8.y, v9.y, y), mix(v0.z, v1.z, v8.z, v9.z, z), mix(v0.w, v1.w, v8.w, v9.w, w);
#pragma unroll
    for (int u = 0; u < 2; u++)
      if (g + 8 * u < LENGTH)
#pragma unroll
        for (int e = 0; e < 2; e++) {
          const i64 to = place + u * 8 * HEADS * HEAD_DIM + e * 16;
          store16(b.results<HEADS_AT>() + to, make_uint4(x[u][e], y[u][e], z[u][e], w[u][e]));
          store16(b.results<HEADS_AT>(CLEARED) + to, make_uint4(~0u, ~0u, ~0u, ~0u));
        }
  }
  b.grid.arrive((int)blockIdx.x < tasks, tasks);
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
      const uint4 q = fresh16(b.results<QKV_AT>() + (i64)row * WIDTH + head * HEAD_DIM + lane * 8);
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
        uint4 result;
        result.x = pair(x / sum, y / sum);
        result.y = __shfl_down_sync(~0u, result.x, 1), result.z = __shfl_down_sync(~0u, result.x, 2);
        result.w = __shfl_down_sync(~0u, result.x, 3);
        if (tid % 4 == 0) {
          const i64 to = (i64)row * HEADS * HEAD_DIM + head * HEAD_DIM + tid * 2;
          store16(b.results<HEADS_AT>() + to, result);
          store16(b.results<HEADS_AT>(CLEARED) + to, make_uint4(~0u, ~0u, ~0u, ~0u));
        }
      }
      sync();
    }
  }
  b.grid.arrive(takes_part, tasks);
}
#endif

__device__ __forceinline__ int num_rounds(const Args& a) {
#if LATENT
  return a.num_layers * a.evaluations;
#else
  return a.num_layers;
#endif
}

#if LENGTH
// Makes what was cleared in a round visible to all blocks before the end of the next one. Named barriers join this warp and
// the computing ones.
__device__ __forceinline__ void publish_cleared(const Args& a) {
  u32* count = (u32*)(a.results + SETS * LAYER_WIDTH * a.rows);
  for (int round = 0; round + CLEARED < num_rounds(a); round++) {
    asm volatile("bar.sync 2, 288;" ::: "memory");
    if ((thread() & 31) == 0) {
      asm volatile("red.release.gpu.global.add.u32 [%0],1;" :: "l"(count) : "memory");
      u32 seen;
      do asm volatile("ld.acquire.gpu.global.u32 %0,[%1];" : "=r"(seen) : "l"(count) : "memory");
      while (seen + 1 < (round + 1) * gridDim.x);
    }
    __syncwarp();
    asm volatile("bar.arrive 3, 288;" ::: "memory");
  }
}
#endif

__device__ __forceinline__ void layers(Block& b) {
#pragma unroll 1
  for (int layer = 0; layer < (int)b.a.num_layers; layer++) {
    const Layer& own = b.s.layers[layer];
    product<QKV>(b, layer, own.gain_in);
    attend(b, layer);
    product<OUTPUT>(b, layer, nullptr);
    product<GATE_UP>(b, layer, own.gain_post);
    product<DOWN>(b, layer, nullptr);
    b.round++;
#if LENGTH
    const int left = num_rounds(b.a) - b.round;
    if (b.round > 1 && left > 0) asm volatile("bar.sync 3, 288;" ::: "memory");
    if (left > 1) asm volatile("bar.arrive 2, 288;" ::: "memory");
#endif
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
      a.x[(i64)(sequence * LENGTH + row) * HIDDEN + column] = value;
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
        a.x[place] = rounded(sum + number(a.in_bias[column]));
      }
    }
  }
  b.grid.arrive<true>(blockIdx.x * 8 < HIDDEN, HIDDEN / 8);
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
        const bf16* h = b.results<END_AT>(-1) + (i64)(row / PATCH * LENGTH + GIVEN + row % PATCH) * HIDDEN;
        float sum = 0, square = 0;
#pragma unroll
        for (int k = lane * 8; k < HIDDEN; k += 256) {
          const uint4 gain = constant16(a.gain_out + k);
          const uint4 w = constant16(a.out_weight + (i64)latent * HIDDEN + k);
          uint4 x;
          do x = fresh16(h + k);
          while (is_missing(x));
          square = dot(x, x, square), sum = dot(times(x, gain), w, sum);
        }
        sum = over_warp(sum), square = over_warp(square);
        if (lane == 0) a.velocity[row * LATENT + latent] = sum * rsqrtf(square / HIDDEN + a.eps) + number(a.out_bias[latent]);
      }
  }
  b.grid.arrive<true>(takes_part, LATENT);
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
#if LENGTH
    else if (thread() < THREADS + 64) publish_cleared(a);
#endif
  } else {
#if DEALS_REGISTERS
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
#endif
    Block b{a, s, Ring{}, Grid{a.counter}, 0};
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
