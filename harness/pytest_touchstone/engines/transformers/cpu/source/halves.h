/* Products with bfloat16 weights, on processors that multiply such numbers. Rows are float32 numbers, of which one piece
   or more are multiplied: 8, 16 or 24 bits. Or rows are bfloat16 numbers, and so are the products. */

#pragma once

#include <stdlib.h>

#include "threads.h"
#include "tile_unit.h"
#include "tiles.h"

#if LANES == 16 && defined(__AVX512BF16__)
#define HALVES 1
#else
#define HALVES 0
#endif

typedef struct {
  const void *x;
  ptrdiff_t x_stride;
  const char *packed; /* [panels, chunks, halves of the columns, TILE_BYTES]: pairs of inputs k and k + 16 of a chunk */
  const float *bias;  /* [outer] or NULL */
  const float *add;   /* float32 [rows, outer], as out is laid out; may be out, or NULL */
  void *out;
  ptrdiff_t out_stride, rows, inner, outer;
  int threads;
  char *pieces; /* room for pieces_size bytes, 64 to the line */
  int half;     /* x and out are bfloat16 numbers, else float32 */
  int count;    /* the pieces of a number that are multiplied */
} halves_work;

#if HALVES

#define HALVES_AHEAD (48 * 2 * TILE_BYTES) /* bytes of weights that are fetched early */

/* Lay a row of bfloat16 numbers out as pairs k and k + 16 of each chunk, with 0 beyond. */
static void pair_row(const uint16_t *x, ptrdiff_t inner, char *to) {
  for (ptrdiff_t k = 0; k < inner; k += TILE_INPUTS, to += TILE_BYTES) {
    ptrdiff_t count = inner - k < TILE_INPUTS ? inner - k : TILE_INPUTS;
    __mmask32 there = count < TILE_INPUTS ? ((__mmask32)1 << count) - 1 : 0xffffffff;
    __m512i numbers = _mm512_maskz_loadu_epi16(there, x + k);
    __m512i low = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(numbers));
    __m512i high = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(numbers, 1));
    _mm512_store_si512(to, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
  }
}

typedef struct {
  const char *x, *weights; /* pieces [tiles, chunks] of rows, and a panel */
  ptrdiff_t rows, chunks;
  int fetches; /* the first rows to meet these weights have later ones fetched */
  float *sums; /* [rows, PANEL] */
} block_work;

INLINE void fetch_weights(const char *weights) {
  UNROLL
  for (int line = 0; line < 2 * TILE_BYTES / 64; line++) __builtin_prefetch(weights + HALVES_AHEAD + line * 64, 0, 2);
}

#if TILE_UNIT

/* Add a chunk's products to sums in tiles 0 to 3, as multiply_chunk does. */
INLINE void multiply_halves_chunk(const int tall, const int pieces, const char *x, const char *more, const char *weights,
                                  const int fetches) {
  UNROLL
  for (int line = 0; line < pieces * TILE_BYTES / 64; line++) {
    __builtin_prefetch(x + pieces * TILE_BYTES + line * 64, 0, 3);
    if (tall) __builtin_prefetch(more + pieces * TILE_BYTES + line * 64, 0, 3);
  }
  FROM(6, weights);
  FROM(7, weights + TILE_BYTES);
  UNROLL
  for (int piece = pieces - 1; piece >= 0; piece--) {
    FROM(4, x + piece * TILE_BYTES);
    DOT(0, 4, 6);
    DOT(1, 4, 7);
    if (tall) {
      FROM(5, more + piece * TILE_BYTES);
      DOT(2, 5, 6);
      DOT(3, 5, 7);
    }
  }
  if (fetches) fetch_weights(weights);
}

INLINE void block_by_tiles(const int pieces, const block_work *b) {
  const ptrdiff_t size = pieces * TILE_BYTES;
  const char *x = b->x, *more = x + b->chunks * size, *weights = b->weights;
  ZERO(0);
  ZERO(1);
  ZERO(2);
  ZERO(3);
  if (b->rows > TILE_ROWS)
    for (ptrdiff_t c = 0; c < b->chunks; c++, weights += 2 * TILE_BYTES, x += size, more += size)
      multiply_halves_chunk(1, pieces, x, more, weights, b->fetches);
  else
    for (ptrdiff_t c = 0; c < b->chunks; c++, weights += 2 * TILE_BYTES, x += size)
      multiply_halves_chunk(0, pieces, x, x, weights, b->fetches);
  TO(0, b->sums);
  TO(1, b->sums + LANES);
  if (b->rows > TILE_ROWS) {
    TO(2, b->sums + TILE_ROWS * PANEL);
    TO(3, b->sums + TILE_ROWS * PANEL + LANES);
  }
}

#endif

/* The same by vectors, for so many rows of a tile. */
#define HALVES_OF(rows)                                                                                    \
  static void halves_of_##rows(const char *x, const char *weights, ptrdiff_t chunks, const int pieces, int fetches, \
                               float *sums) {                                                              \
    __m512 all[rows][2];                                                                                   \
    UNROLL                                                                                                 \
    for (int r = 0; r < rows; r++) all[r][0] = all[r][1] = _mm512_setzero_ps();                            \
    for (ptrdiff_t c = 0; c < chunks; c++, weights += 2 * TILE_BYTES) {                                    \
      if (fetches) fetch_weights(weights);                                                                 \
      for (int piece = 0; piece < pieces; piece++, x += TILE_BYTES)                                        \
        for (int k = 0; k < TILE_BYTES; k += 64) {                                                         \
          __m512bh a = (__m512bh)_mm512_loadu_si512(weights + k);                                          \
          __m512bh b = (__m512bh)_mm512_loadu_si512(weights + TILE_BYTES + k);                             \
          UNROLL                                                                                           \
          for (int r = 0; r < rows; r++) {                                                                 \
            __m512bh pair = (__m512bh)_mm512_set1_epi32(*(const int32_t *)(x + r * 64 + k / 16));          \
            all[r][0] = _mm512_dpbf16_ps(all[r][0], pair, a);                                              \
            all[r][1] = _mm512_dpbf16_ps(all[r][1], pair, b);                                              \
          }                                                                                                \
        }                                                                                                  \
    }                                                                                                      \
    UNROLL                                                                                                 \
    for (int r = 0; r < rows; r++)                                                                         \
      store(sums + r * PANEL, (lanes)all[r][0]), store(sums + r * PANEL + LANES, (lanes)all[r][1]);        \
  }

EACH(HALVES_OF)

static void (*const halves_by_rows[])(const char *, const char *, ptrdiff_t, int, int, float *) = ALL(halves_of);

static void block_by_vectors(int pieces, const block_work *b) {
  for (ptrdiff_t first = 0; first < b->rows; first += TILE_ROWS) {
    const char *x = b->x + first / TILE_ROWS * b->chunks * pieces * TILE_BYTES;
    ptrdiff_t rows = b->rows - first < TILE_ROWS ? b->rows - first : TILE_ROWS, some = rows > MOST_ROWS ? rows / 2 : rows;
    halves_by_rows[some](x, b->weights, b->chunks, pieces, b->fetches && !first, b->sums + first * PANEL);
    if (some < rows)
      halves_by_rows[rows - some](x + some * 64, b->weights, b->chunks, pieces, 0, b->sums + (first + some) * PANEL);
  }
}

/* Multiply a block's rows with a panel. */
static void multiply_block(int pieces, const block_work *b) {
#if TILE_UNIT
  if (tiles_allowed && pieces == 1)
    block_by_tiles(1, b);
  else if (tiles_allowed && pieces == 2)
    block_by_tiles(2, b);
  else if (tiles_allowed)
    block_by_tiles(3, b);
  else
#endif
    block_by_vectors(pieces, b);
}

static void write_halves(const halves_work *p, const float *sums, ptrdiff_t row, ptrdiff_t rows, ptrdiff_t column) {
  ptrdiff_t columns = p->outer - column < PANEL ? p->outer - column : PANEL;
  for (ptrdiff_t r = 0; r < rows; r++)
    for (ptrdiff_t c = 0; c < columns; c += LANES) {
      ptrdiff_t at = (row + r) * p->out_stride + column + c;
      __mmask16 there = columns - c < LANES ? (__mmask16)((1 << (columns - c)) - 1) : 0xffff;
      lanes found = load(sums + r * PANEL + c);
      if (p->bias) found += (lanes)_mm512_maskz_loadu_ps(there, p->bias + column + c);
      if (p->add) found += (lanes)_mm512_maskz_loadu_ps(there, p->add + at);
      if (p->half)
        _mm256_mask_storeu_epi16((uint16_t *)p->out + at, there, (__m256i)_mm512_cvtneps_pbh((__m512)found));
      else
        _mm512_mask_storeu_ps((float *)p->out + at, there, (__m512)found);
    }
}

/* Compute a thread's share. All threads of the team have to come, each with its number. */
static void multiply_halves_share(const halves_work *p, int number, int team) {
  const ptrdiff_t chunks = chunks_of(p->inner), panels = (p->outer + PANEL - 1) / PANEL;
  const ptrdiff_t blocks = (p->rows + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE, pieces = p->count;
  float sums[BLOCK_ROWS * PANEL] __attribute__((aligned(64)));
#if TILE_UNIT
  tile_shapes before;
  if (tiles_allowed) before = shape_tiles();
#endif
  for (ptrdiff_t block = 0; block < blocks; block++) {
    ptrdiff_t begin = p->rows * block / blocks, rows = p->rows * (block + 1) / blocks - begin;
    for (ptrdiff_t r = share_of(rows, number, team); r < share_of(rows, number + 1, team); r++) {
      const void *x = number_at(p->x, (begin + r) * p->x_stride, p->half);
      char *to = p->pieces + r / TILE_ROWS * chunks * pieces * TILE_BYTES + r % TILE_ROWS * 64;
      if (p->half)
        pair_row(x, p->inner, to);
      else
        split_row(x, p->inner, pieces, to);
    }
    wait_for(p->threads);
    IN_MEMORY;
    for (ptrdiff_t panel = share_of(panels, number, team); panel < share_of(panels, number + 1, team); panel++) {
      const char *weights = p->packed + panel * chunks * 2 * TILE_BYTES;
      for (ptrdiff_t row = 0; row < rows; row += BLOCK_ROWS) {
        const char *x = p->pieces + row / TILE_ROWS * chunks * pieces * TILE_BYTES;
        block_work b = {x, weights, rows - row < BLOCK_ROWS ? rows - row : BLOCK_ROWS, chunks, row == 0, sums};
        multiply_block((int)pieces, &b);
        write_halves(p, sums, begin + row, b.rows, panel * PANEL);
      }
    }
    if (block + 1 < blocks) wait_for(p->threads);
  }
#if TILE_UNIT
  if (tiles_allowed) restore_tiles(&before);
#endif
}

static void multiply_halves_in_thread(void *given) {
  const halves_work *p = given;
  multiply_halves_share(p, number_of(p->threads), team_of(p->threads));
}

/* bfloat16 out [rows, outer] = x [rows, inner] times the packed weights, plus float32 bias [outer], which may be NULL;
   false where there is no memory */
int multiply_halves(const void *x, const char *packed, const float *bias, void *out, ptrdiff_t rows, ptrdiff_t inner,
                    ptrdiff_t outer, int threads) {
  halves_work p = {x, inner, packed, bias, 0, out, outer, rows, inner, outer, threads, 0, 1, 1};
  p.pieces = aligned_alloc(64, pieces_size(rows, inner, 1));
  if (!p.pieces) return 0;
  run(multiply_halves_in_thread, &p, threads);
  free(p.pieces);
  return 1;
}

int has_halves(void) { return 1; }

#else

static void multiply_halves_share(const halves_work *p, int number, int team) { (void)p, (void)number, (void)team; }
int multiply_halves(const void *x, const char *packed, const float *bias, void *out, ptrdiff_t rows, ptrdiff_t inner,
                    ptrdiff_t outer, int threads) {
  (void)x, (void)packed, (void)bias, (void)out, (void)rows, (void)inner, (void)outer, (void)threads;
  return 0;
}
int has_halves(void) { return 0; }

#endif
