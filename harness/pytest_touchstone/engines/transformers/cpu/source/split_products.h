/* Products of float32 numbers by the tile unit.

   Numbers are split in three pieces. Six of the nine products of two numbers' pieces are summed; the others are less than
   2 to the -25th of the whole, half of what float32 rounds off. The unit is fast enough for that to take less than half
   the time of vectors. The split is that of Henry, Tang and Heinecke, "Leveraging the bfloat16 Artificial Intelligence
   Datatype For Higher-Precision Computations" (2019).

   Infinity becomes NaN; numbers below 2 to the -126th become 0. */

#pragma once

#include "tile_unit.h"

#if TILE_UNIT

#define PIECES 3
#define CHUNK (PIECES * TILE_BYTES) /* the pieces of 16 rows, or of 16 columns, and of TILE_INPUTS inputs */
#define CHUNKS_APART 18             /* chunks that are summed before they are added to the others */
#define WEIGHTS_AHEAD 256           /* inputs whose weights are fetched early */
#define FEWEST_ROWS 13              /* with fewer, vectors wait for memory as the tile unit would */

typedef struct {
  const float *from; /* weights [inputs, PANEL] */
  ptrdiff_t inputs;  /* those that are there; 0 beyond */
  char *to;          /* two chunks, one for each half of the columns */
  const char *ahead; /* what is fetched meanwhile */
  ptrdiff_t lines;   /* of it for each row: 1, 2 or 4 */
} weights_work;

/* Split row k of a chunk's weights, and its partner. */
INLINE void split_weights(const weights_work *w, ptrdiff_t k) {
  const float *one = w->from + k * PANEL, *other = one + LANES * PANEL;
  UNROLL
  for (int half = 0; half < 2; half++)
    split(k < w->inputs ? load(one + half * LANES) : splat(0),
          k + LANES < w->inputs ? load(other + half * LANES) : splat(0), PIECES, w->to + half * CHUNK + k * 64);
}

/* What a chunk's products leave time for, in TILE_ROWS turns: to split a row of the next weights, to have the pieces and
   the weights that come after in the first cache, and weights of later in the second. */
INLINE void meanwhile(const int k, const int tall, const int splits, const char *x, const char *more,
                      const weights_work *next) {
  enum { OF_PIECES = CHUNK / 64 / TILE_ROWS, OF_WEIGHTS = TILE_INPUTS * PANEL * 4 / 64 / TILE_ROWS };
  const char *weights = (const char *)(next->from + TILE_INPUTS * PANEL), *ahead = next->ahead + k * next->lines * 64;
  if (splits) split_weights(next, k);
  UNROLL
  for (int i = k * OF_PIECES; i < (k + 1) * OF_PIECES; i++) {
    __builtin_prefetch(x + CHUNK + i * 64, 0, 3);
    if (tall) __builtin_prefetch(more + CHUNK + i * 64, 0, 3);
  }
  UNROLL
  for (int i = k * OF_WEIGHTS; i < (k + 1) * OF_WEIGHTS; i++) __builtin_prefetch(weights + i * 64, 0, 3);
  __builtin_prefetch(ahead, 0, 2);
  if (next->lines > 1) __builtin_prefetch(ahead + 64, 0, 2);
  if (next->lines > 2) __builtin_prefetch(ahead + 128, 0, 2), __builtin_prefetch(ahead + 192, 0, 2);
}

/* Add a chunk's products to sums in tiles 0 to 3: those of 16 rows and both halves of a panel's columns, and if tall,
   of 16 more rows. The largest products are summed last. A row's sums are the same whatever is beside it. */
INLINE void multiply_chunk(const int tall, const int splits, const char *x, const char *more, const char *weights,
                           const weights_work *next) {
  const char *left = weights, *right = weights + CHUNK;
#define MEANWHILE(k) meanwhile(k, tall, splits, x, more, next)
#define BOTH(columns, first, second, k)          \
  DOT(first, 4, columns);                        \
  MEANWHILE(k);                                  \
  if (tall) DOT(second, 5, columns)
#define ROWS(piece, k)                           \
  FROM(4, x + piece * TILE_BYTES);               \
  DOT(0, 4, 6);                                  \
  MEANWHILE(k);                                  \
  DOT(1, 4, 7);                                  \
  if (tall) {                                    \
    FROM(5, more + piece * TILE_BYTES);          \
    DOT(2, 5, 6);                                \
  }                                              \
  MEANWHILE(k + 1);                              \
  if (tall) DOT(3, 5, 7)
#define COLUMNS(piece, k)                        \
  FROM(6, left + piece * TILE_BYTES);            \
  BOTH(6, 0, 2, k);                              \
  MEANWHILE(k + 1);                              \
  FROM(7, right + piece * TILE_BYTES);           \
  BOTH(7, 1, 3, k + 2)
  IN_MEMORY;
  FROM(6, left + 2 * TILE_BYTES);
  FROM(7, right + 2 * TILE_BYTES);
  ROWS(0, 0);
  COLUMNS(1, 2);
  ROWS(1, 5);
  COLUMNS(0, 7);
  ROWS(2, 10);
  MEANWHILE(12);
  MEANWHILE(13);
  ROWS(0, 14);
#undef MEANWHILE
#undef BOTH
#undef ROWS
#undef COLUMNS
}

typedef struct {
  const char *x; /* pieces [tiles, chunks] of rows */
  const float *panel, *bias, *add;
  float *out;
  ptrdiff_t rows, columns, inner, out_stride;
} pieces_work;

INLINE ptrdiff_t parts_of(ptrdiff_t inner) { return (chunks_of(inner) + CHUNKS_APART - 1) / CHUNKS_APART; }

/* Write the sums [rows, PANEL] of a part of the inputs, or from the second part on add them. */
static void write_sums(const pieces_work *w, const float *sums, ptrdiff_t row, ptrdiff_t rows, int first) {
  const float *bias = first ? w->bias : 0, *add = first ? w->add : w->out;
  for (ptrdiff_t r = 0; r < rows; r++) {
    ptrdiff_t at = (row + r) * w->out_stride;
    for (ptrdiff_t c = 0; c < w->columns; c += LANES) {
      __mmask16 there = w->columns - c < LANES ? (__mmask16)((1 << (w->columns - c)) - 1) : 0xffff;
      lanes found = load(sums + r * PANEL + c);
      if (bias) found += (lanes)_mm512_maskz_loadu_ps(there, bias + c);
      if (add) found += (lanes)_mm512_maskz_loadu_ps(there, add + at + c);
      _mm512_mask_storeu_ps(w->out + at + c, there, (__m512)found);
    }
  }
}

/* Multiply rows with a part of a panel's inputs. Weights are split anew for each block of rows: that goes on while the
   tile unit multiplies, and two chunks stay in the first cache, which those of a whole panel do not. */
static void multiply_part(const pieces_work *w, ptrdiff_t part) {
  const ptrdiff_t chunks = chunks_of(w->inner), parts = parts_of(w->inner);
  const ptrdiff_t first = chunks * part / parts, count = chunks * (part + 1) / parts - first;
  const ptrdiff_t blocks = (w->rows + BLOCK_ROWS - 1) / BLOCK_ROWS;
  char pieces[2][2 * CHUNK] __attribute__((aligned(64)));
  float sums[BLOCK_ROWS * PANEL] __attribute__((aligned(64)));
  const weights_work start = {.from = w->panel + first * TILE_INPUTS * PANEL, .inputs = w->inner - first * TILE_INPUTS};
  weights_work next = start;
  /* What comes is fetched at leisure, a share of it with each block of rows. */
  next.ahead = (const char *)(start.from + WEIGHTS_AHEAD * PANEL), next.lines = blocks < 3 ? 4 / blocks : 1;
  next.to = pieces[0];
  for (ptrdiff_t k = 0; k < TILE_ROWS; k++) split_weights(&next, k);
  for (ptrdiff_t block = 0, turn = 1; block < blocks; block++) {
    const ptrdiff_t row = block * BLOCK_ROWS, rows = w->rows - row < BLOCK_ROWS ? w->rows - row : BLOCK_ROWS;
    const char *x = w->x + (row / TILE_ROWS * chunks + first) * CHUNK, *more = x + chunks * CHUNK;
    ZERO(0);
    ZERO(1);
    ZERO(2);
    ZERO(3);
    for (ptrdiff_t c = 0; c < count; c++, turn = !turn, x += CHUNK, more += CHUNK) {
      const int last = c + 1 == count;
      next.from = last ? start.from : next.from + TILE_INPUTS * PANEL;
      next.inputs = last ? start.inputs : next.inputs - TILE_INPUTS;
      next.to = pieces[turn];
      if (rows <= TILE_ROWS)
        multiply_chunk(0, 1, x, more, pieces[!turn], &next);
      else if (last && block + 1 == blocks)
        multiply_chunk(1, 0, x, more, pieces[!turn], &next);
      else
        multiply_chunk(1, 1, x, more, pieces[!turn], &next);
      next.ahead += TILE_ROWS * next.lines * 64;
    }
    TO(0, sums);
    TO(1, sums + LANES);
    if (rows > TILE_ROWS) {
      TO(2, sums + TILE_ROWS * PANEL);
      TO(3, sums + TILE_ROWS * PANEL + LANES);
    }
    write_sums(w, sums, row, rows, part == 0);
  }
}

#endif
