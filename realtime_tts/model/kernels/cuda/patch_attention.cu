// Attention over the rows of a patch: whole short sequences, each position to all of its own, with rotation inside.
//
// A block takes heads of one sequence that share a KV head: one for each warp, if it can. Neighbouring threads read whole
// lines of memory. Each thread has sixteen bytes of a head and their partners in rotation, half a head away, so that values
// are rotated before they are stored to shared memory. Then each warp computes a head on tensor cores. The result replaces the head's
// queries in shared memory and is written out in whole lines. No headers: NVRTC builds this with
//   LENGTH            rows of a sequence
//   HEADS, KV_HEADS   heads of 128 values

typedef unsigned short bf16;
typedef unsigned u32;
typedef long long i64;

constexpr int HEAD_DIM = 128, GROUP = HEADS / KV_HEADS, WIDTH = (HEADS + 2 * KV_HEADS) * HEAD_DIM;
constexpr int WARPS = 4, THREADS = WARPS * 32, PIECES = HEAD_DIM / 8;  // of sixteen bytes
constexpr int MEMBERS = GROUP % WARPS ? GROUP : WARPS;                   // heads of a block
constexpr int KEYS = MEMBERS, VALUES = MEMBERS + 1, PLACES = MEMBERS + 2;  // places of heads in shared memory
constexpr int PLACE_BYTES = 16 * HEAD_DIM * 2, AT_ONCE = 6;
constexpr float SCORE_SCALE = 0.08838834764831845f;
static_assert(LENGTH <= 16 && HEADS % KV_HEADS == 0 && GROUP <= 32, "shape");

extern "C" __constant__ int block_threads = THREADS;
extern "C" __constant__ int shared_bytes = PLACES * PLACE_BYTES;

struct Args {
  const bf16* qkv;          // [sequences * LENGTH, WIDTH]
  const float *cos, *sin;   // [LENGTH, HEAD_DIM], the sine signed; null: no rotation
  bf16* out;                // rows of each sequence from first_query on: [.., HEADS * HEAD_DIM]
  i64 first_query;
  const bf16 *kept, *time, *zeros, *fresh;  // in place of `qkv`, if rows are shared: see `row_of`; else null
  i64 streams, conditions;
};

__device__ __forceinline__ float low(u32 v) { return __uint_as_float(v << 16); }
__device__ __forceinline__ float high(u32 v) { return __uint_as_float(v & 0xffff0000u); }
__device__ __forceinline__ u32 pair(float a, float b) {
  u32 r;
  asm("cvt.rn.bf16x2.f32 %0,%1,%2;" : "=r"(r) : "f"(b), "f"(a));
  return r;
}
// c [16 × 8] += a [16 × 16] b [16 × 8]
__device__ __forceinline__ void multiply(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
    : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// Four blocks of 8 × 8: rows 0 to 7 and 8 to 15 of a piece, then of the next one.
__device__ __forceinline__ void fetch(u32 (&r)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3},[%4];"
    : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}
__device__ __forceinline__ void fetch_turned(u32 (&r)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3},[%4];"
    : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}
__device__ __forceinline__ void put(u32 address, u32 r0, u32 r1, u32 r2, u32 r3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0],{%1,%2,%3,%4};"
    :: "r"(address), "r"(r0), "r"(r1), "r"(r2), "r"(r3) : "memory");
}

// Pieces of eight consecutive rows are in different banks.
__device__ __forceinline__ int offset(int place, int row, int piece) {
  return place * PLACE_BYTES + row * HEAD_DIM * 2 + (piece ^ (row & 7)) * 16;
}
__device__ __forceinline__ void rotate(u32& a, u32& b, float2 c, float2 s) {
  const float a0 = low(a), a1 = high(a), b0 = low(b), b1 = high(b);
  a = pair(a0 * c.x - b0 * s.x, a1 * c.y - b1 * s.y), b = pair(b0 * c.x + a0 * s.x, b1 * c.y + a1 * s.y);
}

// A row's projections. Without `kept`, rows are in order in `qkv`. With it, the sequences are the streams and then the
// streams again without their condition. For each stream, `kept` has its conditions and its previous patch, `fresh` its
// noisy patch. `time` is shared by all. Conditions that are left out are `zeros`.
__device__ __forceinline__ const bf16* row_of(const Args& a, i64 sequence, int row) {
  if (!a.kept) return a.qkv + (sequence * LENGTH + row) * WIDTH;
  const int conditions = (int)a.conditions, patch = (LENGTH - conditions - 1) / 2;
  const i64 stream = sequence < a.streams ? sequence : sequence - a.streams;
  if (row < conditions && sequence >= a.streams) return a.zeros;
  if (row == conditions) return a.time;
  if (row <= conditions + patch) return a.kept + (stream * (conditions + patch) + row - (row > conditions)) * WIDTH;
  return a.fresh + (stream * patch + row - 1 - conditions - patch) * WIDTH;
}

extern "C" __global__ void __launch_bounds__(THREADS, 4) patch_attention(const __grid_constant__ Args a) {
  extern __shared__ __align__(128) char memory[];
  constexpr int BLOCKS = HEADS / MEMBERS;  // of a sequence
  const i64 sequence = blockIdx.x / BLOCKS;
  const int first_head = blockIdx.x % BLOCKS * MEMBERS, kv_head = first_head / GROUP;
  if (threadIdx.x < LENGTH * PIECES / 2) {
    const int row = threadIdx.x / (PIECES / 2), piece = threadIdx.x % (PIECES / 2);
    const bf16* own = row_of(a, sequence, row) + piece * 8;
    float2 c[4], s[4];
    if (a.cos)
#pragma unroll
      for (int i = 0; i < 4; i++) {
        c[i] = *(const float2*)(a.cos + row * HEAD_DIM + piece * 8 + i * 2);
        s[i] = *(const float2*)(a.sin + row * HEAD_DIM + HEAD_DIM / 2 + piece * 8 + i * 2);
      }
#pragma unroll
    for (int first = 0; first < PLACES; first += AT_ONCE) {
      uint4 x[AT_ONCE], y[AT_ONCE];
#pragma unroll
      for (int i = 0; i < AT_ONCE; i++) {
        const int place = first + i;
        if (place >= PLACES) continue;
        const int head = place < KEYS ? first_head + place : HEADS + (place == KEYS ? 0 : KV_HEADS) + kv_head;
        x[i] = *(const uint4*)(own + head * HEAD_DIM), y[i] = *(const uint4*)(own + head * HEAD_DIM + HEAD_DIM / 2);
      }
#pragma unroll
      for (int i = 0; i < AT_ONCE; i++) {
        const int place = first + i;
        if (place >= PLACES) continue;
        if (a.cos && place != VALUES) {
          rotate(x[i].x, y[i].x, c[0], s[0]), rotate(x[i].y, y[i].y, c[1], s[1]);
          rotate(x[i].z, y[i].z, c[2], s[2]), rotate(x[i].w, y[i].w, c[3], s[3]);
        }
        *(uint4*)(memory + offset(place, row, piece)) = x[i];
        *(uint4*)(memory + offset(place, row, piece + PIECES / 2)) = y[i];
      }
    }
  }
  __syncthreads();

  const int lane = threadIdx.x & 31, t = lane & 3, first_query = (int)a.first_query;
  const u32 base = (u32)__cvta_generic_to_shared(memory);
  // The row and the piece that a lane addresses for four blocks. Rows after the last key or value have no weight, but
  // must be finite.
  const int row = lane & 15, next = lane >> 4, key_row = min(row, LENGTH - 1);
#pragma unroll 1
  for (int member = threadIdx.x >> 5; member < MEMBERS; member += WARPS) {
    float scores[2][4] = {{0, 0, 0, 0}, {0, 0, 0, 0}};
#pragma unroll
    for (int piece = 0; piece < PIECES; piece += 2) {
      u32 q[4], k[4];
      fetch(q, base + offset(member, row, piece + next));
      fetch(k, base + offset(KEYS, key_row, piece + next));
      multiply(scores[0], q, k[0], k[2]);
      multiply(scores[1], q, k[1], k[3]);
    }
    u32 p[4];  // weights of keys 2t, 2t + 1: of a row, of the eighth after it; and of the keys eight further
#pragma unroll
    for (int u = 0; u < 2; u++) {
      float w[4] = {scores[0][2 * u], scores[0][2 * u + 1], scores[1][2 * u], scores[1][2 * u + 1]};
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
      p[u] = pair(w[0] * share, w[1] * share), p[u + 2] = pair(w[2] * share, w[3] * share);
    }
    __syncwarp();  // all have read the queries
#pragma unroll
    for (int piece = 0; piece < PIECES; piece += 2) {
      u32 v[4];
      fetch_turned(v, base + offset(VALUES, key_row, piece + next));
      float x[4] = {0, 0, 0, 0}, y[4] = {0, 0, 0, 0};
      multiply(x, p, v[0], v[1]);
      multiply(y, p, v[2], v[3]);
      put(base + offset(member, row, piece + next), pair(x[0], x[1]), pair(x[2], x[3]), pair(y[0], y[1]), pair(y[2], y[3]));
    }
    __syncwarp();
    bf16* out = a.out + sequence * (LENGTH - first_query) * (HEADS * HEAD_DIM) + (first_head + member) * HEAD_DIM;
    for (int query = first_query + (lane >> 4); query < LENGTH; query += 2)
      *(uint4*)(out + (query - first_query) * (HEADS * HEAD_DIM) + (lane & 15) * 8) =
        *(const uint4*)(memory + offset(member, query, lane & 15));
  }
}
