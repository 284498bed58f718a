/* The instructions of AVX-512, of its bfloat16 products and of the tile unit that the kernels use, in plain C, for
   processors without them. What they compute is said in Intel's "64 and IA-32 Architectures Software Developer's
   Manual", volume 2. To be included before everything else; WITH_HALVES and WITH_TILES say what there is beside
   AVX-512. */

#pragma once

#include <immintrin.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#undef __AVX512F__
#undef __AVX512BF16__
#undef __AMX_TILE__
#undef __AMX_BF16__
#define __AVX512F__ 1
#ifdef WITH_HALVES
#define __AVX512BF16__ 1
#endif
#ifdef WITH_TILES
#define __AMX_TILE__ 1
#define __AMX_BF16__ 1
#endif

#define EMULATED static inline __attribute__((always_inline, unused))
#define EACH_NUMBER for (int i = 0; i < 16; i++)

typedef union {
  __m512 floats;
  __m512i wholes;
  __m256i halves[2];
  float f[16];
  uint32_t u[16];
  uint16_t h[32];
} emulated;

/* Of two numbers of which one is NaN, the second. */
EMULATED __m512 larger_of(__m512 a, __m512 b) {
  emulated x = {a}, y = {b};
  EACH_NUMBER y.f[i] = x.f[i] > y.f[i] ? x.f[i] : y.f[i];
  return y.floats;
}
EMULATED __m512 smaller_of(__m512 a, __m512 b) {
  emulated x = {a}, y = {b};
  EACH_NUMBER y.f[i] = x.f[i] < y.f[i] ? x.f[i] : y.f[i];
  return y.floats;
}
EMULATED __m512 scaled(__m512 a, __m512 b) {
  emulated x = {a}, y = {b};
  EACH_NUMBER x.f[i] = y.f[i] == y.f[i] ? ldexpf(x.f[i], (int)floorf(y.f[i])) : y.f[i];
  return x.floats;
}
EMULATED __m512 wide_float16(__m256i a) {
  emulated x;
  __m256 low = _mm256_cvtph_ps(_mm256_castsi256_si128(a)), high = _mm256_cvtph_ps(_mm256_extracti128_si256(a, 1));
  memcpy(x.f, &low, 32), memcpy(x.f + 8, &high, 32);
  return x.floats;
}
EMULATED __m512i wide_whole(__m256i a) {
  emulated x = {.halves = {a}}, y;
  EACH_NUMBER y.u[i] = x.h[i];
  return y.wholes;
}

#define OF_EACH(name, takes, gives)             \
  EMULATED __m512i name(__m512i a, takes) {     \
    emulated x = {.wholes = a};                 \
    EACH_NUMBER x.u[i] = gives;                 \
    return x.wholes;                            \
  }
#define OF_BOTH(name, gives)                    \
  EMULATED __m512i name(__m512i a, __m512i b) { \
    emulated x = {.wholes = a}, y = {.wholes = b}; \
    EACH_NUMBER x.u[i] = gives;                 \
    return x.wholes;                            \
  }
OF_EACH(to_the_left, int by, x.u[i] << by)
OF_EACH(to_the_right, int by, x.u[i] >> by)
OF_BOTH(sum_of_wholes, x.u[i] + y.u[i])
OF_BOTH(both_bits, x.u[i] & y.u[i])
OF_BOTH(either_bits, x.u[i] | y.u[i])

EMULATED __m256i half_of(__m512i a, int which) { return ((emulated){.wholes = a}).halves[which]; }
EMULATED __m512i everywhere(int number) {
  emulated x;
  EACH_NUMBER x.u[i] = (uint32_t)number;
  return x.wholes;
}
EMULATED __m512i read_all(const void *from) {
  emulated x;
  memcpy(&x, from, 64);
  return x.wholes;
}
EMULATED void write_all(void *to, __m512i a) { memcpy(to, &a, 64); }

/* Of a mask's bits, only those that are set read or write memory. */
EMULATED __m512 read_some(uint16_t mask, const float *from) {
  emulated x = {{0}};
  EACH_NUMBER if (mask >> i & 1) x.f[i] = from[i];
  return x.floats;
}
EMULATED void write_some(float *to, uint16_t mask, __m512 a) {
  emulated x = {a};
  EACH_NUMBER if (mask >> i & 1) to[i] = x.f[i];
}
EMULATED __m512i read_some_halves(uint32_t mask, const void *from) {
  emulated x = {{0}};
  for (int i = 0; i < 32; i++)
    if (mask >> i & 1) x.h[i] = ((const uint16_t *)from)[i];
  return x.wholes;
}
EMULATED void write_some_halves(void *to, uint16_t mask, __m256i a) {
  emulated x = {.halves = {a}};
  EACH_NUMBER if (mask >> i & 1)((uint16_t *)to)[i] = x.h[i];
}
EMULATED __m512i blended(uint32_t mask, __m512i a, __m512i b) {
  emulated x = {.wholes = a}, y = {.wholes = b};
  for (int i = 0; i < 32; i++)
    if (mask >> i & 1) x.h[i] = y.h[i];
  return x.wholes;
}

/* bfloat16: numbers too small for a normal one are 0 wherever they come in or out. */
EMULATED float flushed(float number) { return fpclassify(number) == FP_SUBNORMAL ? copysignf(0, number) : number; }
EMULATED float wide_half(uint16_t half) {
  uint32_t bits = (uint32_t)half << 16;
  float number;
  memcpy(&number, &bits, 4);
  return flushed(number);
}
EMULATED __m256i narrowed(__m512 a) {
  emulated x = {a}, y;
  EACH_NUMBER {
    emulated one = {.f = {flushed(x.f[i])}};
    y.h[i] = x.f[i] == x.f[i] ? (one.u[0] + 0x7fff + (one.u[0] >> 16 & 1)) >> 16 : 0x7fc0;
  }
  return y.halves[0];
}
typedef uint16_t pairs __attribute__((vector_size(64), aligned(2), may_alias));
EMULATED __m512 with_pairs(__m512 sums, pairs a, pairs b) {
  emulated s = {sums};
  EACH_NUMBER {
    float odd = flushed(fmaf(wide_half(a[2 * i + 1]), wide_half(b[2 * i + 1]), flushed(s.f[i])));
    s.f[i] = flushed(fmaf(wide_half(a[2 * i]), wide_half(b[2 * i]), odd));
  }
  return s.floats;
}

#define __m512bh pairs
#define _mm512_max_ps larger_of
#define _mm512_min_ps smaller_of
#define _mm512_scalef_ps scaled
#define _mm512_cvtph_ps wide_float16
#define _mm512_cvtepu16_epi32 wide_whole
#define _mm512_slli_epi32 to_the_left
#define _mm512_srli_epi32 to_the_right
#define _mm512_add_epi32 sum_of_wholes
#define _mm512_and_si512 both_bits
#define _mm512_or_si512 either_bits
#define _mm512_castsi512_si256(a) half_of(a, 0)
#define _mm512_extracti64x4_epi64 half_of
#define _mm512_loadu_si512 read_all
#define _mm512_store_si512 write_all
#define _mm512_set1_epi32 everywhere
#define _mm512_setzero_ps() ((__m512){0})
#define _mm512_maskz_loadu_ps read_some
#define _mm512_mask_storeu_ps write_some
#define _mm512_maskz_loadu_epi16 read_some_halves
#define _mm256_mask_storeu_epi16 write_some_halves
#define _mm512_mask_blend_epi16 blended
#define _mm512_cvtneps_pbh narrowed
#define _mm512_dpbf16_ps with_pairs

#ifdef WITH_TILES

typedef float tile_rows[16][16];
static _Thread_local tile_rows tiles_here[8];
static int tiles_allowed;

int use_tiles(void) { return tiles_allowed = 1; }

/* Odd and even products of a row and a column are summed apart, and added once. */
EMULATED void add_tile(tile_rows sums, tile_rows rows, tile_rows columns) {
  for (int row = 0; row < 16; row++) {
    float found[2][16] = {{0}};
    for (int k = 0; k < 16; k++)
      for (int odd = 0; odd < 2; odd++) {
        float one = wide_half(((uint16_t *)&rows[row][k])[odd]);
        for (int c = 0; c < 16; c++) found[odd][c] += one * wide_half(((uint16_t *)&columns[k][c])[odd]);
      }
    for (int c = 0; c < 16; c++)
      sums[row][c] = flushed(flushed(sums[row][c]) + flushed(flushed(found[0][c]) + flushed(found[1][c])));
  }
}

typedef int tile_shapes;
EMULATED tile_shapes shape_tiles(void) { return 0; }
/* What a thread has in its tiles is gone then. */
EMULATED void restore_tiles(const tile_shapes *before) { memset(tiles_here, 0xff, sizeof tiles_here), (void)before; }

#define FROM(tile, from) memcpy(tiles_here[tile], from, sizeof(tile_rows))
#define TO(tile, to)            \
  for (int r = 0; r < 16; r++) \
  memcpy((float *)(to) + r * PANEL, tiles_here[tile][r], sizeof tiles_here[tile][r])
#define ZERO(tile) memset(tiles_here[tile], 0, sizeof(tile_rows))
#define DOT(sums, rows, columns) add_tile(tiles_here[sums], tiles_here[rows], tiles_here[columns])

#endif
