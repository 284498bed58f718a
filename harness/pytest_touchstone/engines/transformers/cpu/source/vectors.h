/* Vectors of float32 numbers, as wide as the processor's, and what is computed with them. */

#pragma once

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__AVX512F__)
#define LANES 16
#define MOST_ROWS 12 /* rows of a tile: with two vectors of each, 24 of 32 registers are sums */
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define LANES 8
#define MOST_ROWS 6 /* 12 of 16 registers */
#else
#error "neither AVX-512 nor AVX2 with FMA and F16C"
#endif

#define PANEL (2 * LANES) /* columns of a tile */

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

typedef float lanes __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t whole __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

INLINE lanes splat(float number) { return number - (lanes){0}; }
INLINE lanes load(const float *from) { return *(const lanes *)from; }
INLINE void store(float *to, lanes numbers) { *(lanes *)to = numbers; }
/* Of two numbers of which one is NaN, the second. */
#if LANES == 16
INLINE lanes larger(lanes a, lanes b) { return (lanes)_mm512_max_ps((__m512)a, (__m512)b); }
INLINE lanes smaller(lanes a, lanes b) { return (lanes)_mm512_min_ps((__m512)a, (__m512)b); }
#else
INLINE lanes larger(lanes a, lanes b) { return (lanes)_mm256_max_ps((__m256)a, (__m256)b); }
INLINE lanes smaller(lanes a, lanes b) { return (lanes)_mm256_min_ps((__m256)a, (__m256)b); }
#endif

INLINE float sum_of(lanes numbers) {
#if LANES == 16
  numbers += __builtin_shuffle(numbers, (whole){8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7});
  numbers += __builtin_shuffle(numbers, (whole){4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11});
  numbers += __builtin_shuffle(numbers, (whole){2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13});
  numbers += __builtin_shuffle(numbers, (whole){1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14});
#else
  numbers += __builtin_shuffle(numbers, (whole){4, 5, 6, 7, 0, 1, 2, 3});
  numbers += __builtin_shuffle(numbers, (whole){2, 3, 0, 1, 6, 7, 4, 5});
  numbers += __builtin_shuffle(numbers, (whole){1, 0, 3, 2, 5, 4, 7, 6});
#endif
  return numbers[0];
}

/* e to the power of each number, to 2 units in the last place; 0 and infinity beyond float32, NaN for NaN. By
   the Taylor series of what remains after the next power of two. */
INLINE lanes exp_of(lanes x) {
  lanes near = smaller(splat(89.0f), larger(splat(-104.0f), x));
  lanes shifted = near * 1.44269504f + 12582912.0f; /* 1.5 times 2 to the 23rd: rounds to a whole number */
  lanes n = shifted - 12582912.0f;
  lanes r = near - n * 0.693359375f + n * 2.12194440e-4f;
  lanes p = splat(1.0f / 720);
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
#if LANES == 16
  return (lanes)_mm512_scalef_ps((__m512)p, (__m512)n);
#else
  /* In two steps, so that either half of the power is a number that float32 has. */
  whole power = __builtin_convertvector(n, whole), half = power >> 1;
  return p * (lanes)((half + 127) << 23) * (lanes)((power - half + 127) << 23);
#endif
}

INLINE float exp_one(float x) { return exp_of(splat(x))[0]; }

/* Have so many numbers on the way to the core's second cache. */
INLINE void fetch(const void *from, ptrdiff_t count) {
  for (ptrdiff_t i = 0; i < count; i += 16) __builtin_prefetch((const float *)from + i, 0, 2);
}

/* bfloat16 numbers: the upper halves of float32 ones. Where a part of the code takes both types, ``half`` says which. */

#define FLOAT32 0
#define BFLOAT16 1
#define FLOAT16 2 /* of weights alone */

INLINE const void *number_at(const void *base, ptrdiff_t at, const int half) {
  return (const char *)base + at * (half ? 2 : 4);
}

INLINE lanes load_as(const void *from, ptrdiff_t at, const int half) {
  if (!half) return load((const float *)from + at);
  const void *numbers = (const uint16_t *)from + at;
#if LANES == 16
  if (half == FLOAT16) return (lanes)_mm512_cvtph_ps(_mm256_loadu_si256(numbers));
  return (lanes)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(numbers)), 16);
#else
  if (half == FLOAT16) return (lanes)_mm256_cvtph_ps(_mm_loadu_si128(numbers));
  return (lanes)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(numbers)), 16);
#endif
}

INLINE float number_as(const void *from, ptrdiff_t at, const int half) {
  if (!half) return ((const float *)from)[at];
  uint32_t bits = (uint32_t)((const uint16_t *)from)[at] << 16;
  float number;
  __builtin_memcpy(&number, &bits, 4);
  return number;
}

typedef uint32_t bits __attribute__((vector_size(4 * LANES)));
typedef uint16_t halves __attribute__((vector_size(2 * LANES), aligned(2), may_alias));

/* Write numbers, rounded to nearest, of two to the even one; NaN stays NaN. */
INLINE void store_as(void *to, ptrdiff_t at, lanes numbers, const int half) {
  if (!half) {
    store((float *)to + at, numbers);
    return;
  }
  bits all = (bits)numbers, nan = (bits)(numbers != numbers);
  all += 0x7fff + (all >> 16 & 1);
  *(halves *)((uint16_t *)to + at) = __builtin_convertvector(((all & ~nan) | (0x7fc00000 & nan)) >> 16, halves);
}

/* The same for one. */
INLINE void store_one(void *to, ptrdiff_t at, float number, const int half) {
  if (!half) {
    ((float *)to)[at] = number;
    return;
  }
  uint32_t bits;
  __builtin_memcpy(&bits, &number, 4);
  bits = number == number ? bits + 0x7fff + (bits >> 16 & 1) : 0x7fc00000;
  ((uint16_t *)to)[at] = (uint16_t)(bits >> 16);
}
