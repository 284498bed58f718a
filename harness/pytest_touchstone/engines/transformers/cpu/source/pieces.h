/* Pieces of float32 numbers, which bfloat16 holds, of 8 bits each: a number is the sum of three. */

#pragma once

#include "vectors.h"

#define TILE_ROWS 16
#define TILE_INPUTS 32 /* inputs of a tile: pairs of bfloat16 numbers, 64 bytes per row */
#define TILE_BYTES 1024
#define BLOCK_ROWS (2 * TILE_ROWS)    /* rows that meet a panel's columns at once */
#define ROWS_AT_ONCE (8 * BLOCK_ROWS) /* rows whose pieces are there at once */

/* The chunks of TILE_INPUTS inputs. */
INLINE ptrdiff_t chunks_of(ptrdiff_t inner) { return (inner + TILE_INPUTS - 1) / TILE_INPUTS; }

/* The bytes of the pieces of so many rows, of which ROWS_AT_ONCE are there at once. */
static ptrdiff_t pieces_size(ptrdiff_t rows, ptrdiff_t inner, int pieces) {
  ptrdiff_t most = rows < ROWS_AT_ONCE ? rows : ROWS_AT_ONCE;
  return (most + TILE_ROWS - 1) / TILE_ROWS * chunks_of(inner) * pieces * TILE_BYTES;
}

#if LANES == 16

/* Split numbers and their partners, and write for each piece their pairs, since products are of pairs. Pieces are
   rounded to nearest, so that those left out lie to both sides. */
INLINE void split(lanes number, lanes partner, const int pieces, char *to) {
  const __m512i half = _mm512_set1_epi32(0x8000), high = _mm512_set1_epi32((int)0xffff0000);
  UNROLL
  for (int piece = 0; piece < pieces; piece++) {
    __m512i one = (__m512i)number, other = (__m512i)partner;
    if (piece < 2) one = _mm512_add_epi32(one, half), other = _mm512_add_epi32(other, half);
    __m512i pairs = _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_srli_epi32(one, 16), other);
    _mm512_store_si512(to + piece * TILE_BYTES, pairs);
    number -= (lanes)_mm512_and_si512(one, high), partner -= (lanes)_mm512_and_si512(other, high);
  }
}

/* The first inputs of a row, with 0 beyond. */
INLINE lanes load_some(const float *from, ptrdiff_t count) {
  return count >= LANES ? load(from) : (lanes)_mm512_maskz_loadu_ps(count > 0 ? (1 << count) - 1 : 0, from);
}

/* A piece's pairs are inputs k and k + 16 of a chunk, both of rows and of weights. */
INLINE void split_row(const float *x, ptrdiff_t inner, const int pieces, char *to) {
  for (ptrdiff_t k = 0; k < inner; k += TILE_INPUTS, to += pieces * TILE_BYTES)
    split(load_some(x + k, inner - k), load_some(x + k + LANES, inner - k - LANES), pieces, to);
}

#endif
