/* Products with bfloat16 weights by Intel's tile unit. Rows are float32 numbers, of which two pieces are multiplied: 16
   of 24 bits, where a model in bfloat16 would round them to 8. Or they are bfloat16 numbers, and so are the products. */

#pragma once

#include "pieces.h"

#if PIECES && defined(__AVX512BF16__)
#define HALVES 2 /* pieces of a float32 number */
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
  char *pieces; /* room for halves_size bytes, 64 to the line */
  int half;     /* x and out are bfloat16 numbers, else float32 */
} halves_work;

#if HALVES

#define HALVES_AHEAD (48 * 2 * TILE_BYTES) /* bytes of weights that are fetched early */

static ptrdiff_t halves_size(ptrdiff_t rows, ptrdiff_t inner) {
  ptrdiff_t most = rows < ROWS_AT_ONCE ? rows : ROWS_AT_ONCE;
  return (most + TILE_ROWS - 1) / TILE_ROWS * chunks_of(inner) * HALVES * TILE_BYTES;
}

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

/* Add a chunk's products to sums in tiles 0 to 3, as multiply_chunk does; fetches: the first rows to meet these weights
   have later ones fetched. */
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
  if (fetches) {
    UNROLL
    for (int line = 0; line < 2 * TILE_BYTES / 64; line++) __builtin_prefetch(weights + HALVES_AHEAD + line * 64, 0, 2);
  }
}

INLINE void multiply_halves_block(const int tall, const int pieces, const char *x, const char *more, const char *weights,
                                  ptrdiff_t chunks, const int fetches) {
  for (ptrdiff_t c = 0; c < chunks; c++, weights += 2 * TILE_BYTES, x += pieces * TILE_BYTES, more += pieces * TILE_BYTES)
    multiply_halves_chunk(tall, pieces, x, more, weights, fetches);
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
  const ptrdiff_t blocks = (p->rows + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE, size = (p->half ? 1 : HALVES) * TILE_BYTES;
  float sums[BLOCK_ROWS * PANEL] __attribute__((aligned(64)));
  const tile_shapes before = shape_tiles();
  for (ptrdiff_t block = 0; block < blocks; block++) {
    ptrdiff_t begin = p->rows * block / blocks, rows = p->rows * (block + 1) / blocks - begin;
    for (ptrdiff_t r = share_of(rows, number, team); r < share_of(rows, number + 1, team); r++) {
      const void *x = number_at(p->x, (begin + r) * p->x_stride, p->half);
      char *to = p->pieces + r / TILE_ROWS * chunks * size + r % TILE_ROWS * 64;
      if (p->half)
        pair_row(x, p->inner, to);
      else
        split_row(x, p->inner, HALVES, to);
    }
    wait_for(p->threads);
    IN_MEMORY;
    for (ptrdiff_t panel = share_of(panels, number, team); panel < share_of(panels, number + 1, team); panel++) {
      const char *weights = p->packed + panel * chunks * 2 * TILE_BYTES;
      for (ptrdiff_t row = 0; row < rows; row += BLOCK_ROWS) {
        const char *x = p->pieces + row / TILE_ROWS * chunks * size, *more = x + chunks * size;
        const ptrdiff_t some = rows - row < BLOCK_ROWS ? rows - row : BLOCK_ROWS;
        ZERO(0);
        ZERO(1);
        ZERO(2);
        ZERO(3);
        if (p->half && some > TILE_ROWS)
          multiply_halves_block(1, 1, x, more, weights, chunks, row == 0);
        else if (p->half)
          multiply_halves_block(0, 1, x, more, weights, chunks, row == 0);
        else if (some > TILE_ROWS)
          multiply_halves_block(1, HALVES, x, more, weights, chunks, row == 0);
        else
          multiply_halves_block(0, HALVES, x, more, weights, chunks, row == 0);
        TO(0, sums);
        TO(1, sums + LANES);
        if (some > TILE_ROWS) {
          TO(2, sums + TILE_ROWS * PANEL);
          TO(3, sums + TILE_ROWS * PANEL + LANES);
        }
        write_halves(p, sums, begin + row, some, panel * PANEL);
      }
    }
    if (block + 1 < blocks) wait_for(p->threads);
  }
  restore_tiles(&before);
}

static void multiply_halves_in_thread(void *given) {
  const halves_work *p = given;
  multiply_halves_share(p, number_of(p->threads), team_of(p->threads));
}

/* bfloat16 out [rows, outer] = x [rows, inner] times the packed weights, plus float32 bias [outer], which may be NULL */
void multiply_halves(const void *x, const char *packed, const float *bias, void *out, ptrdiff_t rows, ptrdiff_t inner,
                     ptrdiff_t outer, int threads) {
  halves_work p = {x, inner, packed, bias, 0, out, outer, rows, inner, outer, threads, 0, 1};
  p.pieces = aligned_alloc(64, halves_size(rows, inner));
  run(multiply_halves_in_thread, &p, threads);
  free(p.pieces);
}

int has_halves(void) { return tiles_allowed; }

#else

static ptrdiff_t halves_size(ptrdiff_t rows, ptrdiff_t inner) { return 0 * rows * inner; }
static void multiply_halves_share(const halves_work *p, int number, int team) { (void)p, (void)number, (void)team; }
void multiply_halves(const void *x, const char *packed, const float *bias, void *out, ptrdiff_t rows, ptrdiff_t inner,
                     ptrdiff_t outer, int threads) {
  (void)x, (void)packed, (void)bias, (void)out, (void)rows, (void)inner, (void)outer, (void)threads;
}
int has_halves(void) { return 0; }

#endif
