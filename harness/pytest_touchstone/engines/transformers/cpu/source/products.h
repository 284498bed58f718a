/* Products with packed weights. */

#pragma once

#include <stdlib.h>
#include "split_products.h"
#include "threads.h"
#include "tiles.h"

#define TILES_AT_ONCE 16 /* tiles that meet a panel while it is in a core's cache */
#define SUMMED_APART 192 /* products that are summed before they are added to the others */
#define AHEAD 64         /* inputs whose part of a panel is fetched early where few rows meet it */

int panel_width(void) { return PANEL; }

typedef struct {
  const float *x;
  ptrdiff_t x_stride;
  const void *packed;  /* [panels, inner, PANEL] */
  int type;            /* of the packed numbers */
  const float *bias;   /* [outer] or NULL */
  const float *add;    /* [rows, outer], as out is laid out; may be out, or NULL */
  float *out;
  ptrdiff_t out_stride, rows, inner, outer;
  int threads;
  char *pieces; /* where those of pieces_size bytes go, 64 to the line; NULL: without */
} product_work;

typedef struct {
  const float *x, *bias, *add;
  const void *panel;
  float *out;
  ptrdiff_t x_stride, inner, out_stride;
  const char *ahead;
  ptrdiff_t step;
} tile_work;

/* A single sum over a thousand numbers would be rounded a thousand times at its full size: parts are summed apart. */
#define PRODUCT_OF(name, type, rows)                                                                      \
  static void name##_##rows(const tile_work *t) {                                                         \
    lanes all[rows][2];                                                                                   \
    lanes first = t->bias ? load(t->bias) : splat(0), second = t->bias ? load(t->bias + LANES) : first;   \
    UNROLL                                                                                                \
    for (int r = 0; r < rows; r++) all[r][0] = first, all[r][1] = second;                                 \
    const char *ahead = t->ahead;                                                                         \
    for (ptrdiff_t from = 0; from < t->inner; from += SUMMED_APART) {                                     \
      ptrdiff_t count = t->inner - from < SUMMED_APART ? t->inner - from : SUMMED_APART;                  \
      const float *x = t->x + from;                                                                       \
      const void *panel = number_at(t->panel, from * PANEL, type);                                        \
      lanes sums[rows][2];                                                                                \
      UNROLL                                                                                              \
      for (int r = 0; r < rows; r++) sums[r][0] = sums[r][1] = splat(0);                                  \
      if (t->step > 64)                                                                                   \
        tile_as(type, rows, x, t->x_stride, 1, panel, PANEL, count, ahead, 2, 4 * PANEL, sums);           \
      else                                                                                                \
        tile_as(type, rows, x, t->x_stride, 1, panel, PANEL, count, ahead, 1, t->step, sums);             \
      ahead += count * t->step;                                                                           \
      UNROLL                                                                                              \
      for (int r = 0; r < rows; r++) all[r][0] += sums[r][0], all[r][1] += sums[r][1];                    \
    }                                                                                                     \
    UNROLL                                                                                                \
    for (int r = 0; r < rows; r++)                                                                        \
      for (int v = 0; v < 2; v++) {                                                                       \
        ptrdiff_t at = r * t->out_stride + v * LANES;                                                     \
        if (t->add) all[r][v] += load(t->add + at);                                                       \
        store(t->out + at, all[r][v]);                                                                    \
      }                                                                                                   \
  }

#define BY_FLOAT32(rows) PRODUCT_OF(by_float32, FLOAT32, rows)
#define BY_BFLOAT16(rows) PRODUCT_OF(by_bfloat16, BFLOAT16, rows)
#define BY_FLOAT16(rows) PRODUCT_OF(by_float16, FLOAT16, rows)
EACH(BY_FLOAT32)
EACH(BY_BFLOAT16)
EACH(BY_FLOAT16)

static void (*const products_by_rows[][MOST_ROWS + 1])(const tile_work *) = {ALL(by_float32), ALL(by_bfloat16),
                                                                             ALL(by_float16)};

/* Multiply the rows of tiles [first, first + tiles) of so many. */
static void multiply_panel(const product_work *p, ptrdiff_t panel, ptrdiff_t first, ptrdiff_t tiles, ptrdiff_t all) {
  ptrdiff_t column = panel * PANEL;
  int edge = p->outer - column < PANEL;
  float wide[MOST_ROWS * PANEL];
  tile_work t = {.inner = p->inner, .x_stride = p->x_stride};
  t.panel = number_at(p->packed, panel * p->inner * PANEL, p->type);
  const ptrdiff_t line = PANEL * (p->type == FLOAT32 ? 4 : 2); /* bytes of a panel that an input meets */
  t.bias = p->bias && !edge ? p->bias + column : 0;
  /* What this panel's tiles read is in the cache after the first of them; meanwhile the next panel is fetched. */
  t.step = tiles == 1 ? line : line / tiles < 64 ? line / tiles : 64;
  for (ptrdiff_t i = 0; i < tiles; i++) {
    ptrdiff_t row = p->rows * (first + i) / all, rows = p->rows * (first + i + 1) / all - row;
    float *out = p->out + row * p->out_stride + column;
    const float *add = p->add ? p->add + row * p->out_stride + column : 0;
    t.x = p->x + row * p->x_stride;
    t.out = edge ? wide : out, t.out_stride = edge ? PANEL : p->out_stride;
    t.add = edge ? 0 : add;
    t.ahead = (const char *)t.panel + (tiles == 1 ? AHEAD * line : line * p->inner + i * t.step * p->inner);
    products_by_rows[p->type][rows](&t);
    if (edge)
      for (ptrdiff_t r = 0; r < rows; r++)
        for (ptrdiff_t c = 0; c < p->outer - column; c++)
          out[r * p->out_stride + c] = wide[r * PANEL + c] + (p->bias ? p->bias[column + c] : 0) +
                                       (add ? add[r * p->out_stride + c] : 0);
  }
}

#if TILE_UNIT

static void multiply_by_tiles(const product_work *p, int number, int team) {
  const ptrdiff_t chunks = chunks_of(p->inner), parts = parts_of(p->inner), panels = (p->outer + PANEL - 1) / PANEL;
  const ptrdiff_t blocks = (p->rows + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE;
  const ptrdiff_t first = share_of(panels, number, team), mine = share_of(panels, number + 1, team) - first;
  const tile_shapes before = shape_tiles();
  for (ptrdiff_t block = 0; block < blocks; block++) {
    ptrdiff_t begin = p->rows * block / blocks, rows = p->rows * (block + 1) / blocks - begin;
    for (ptrdiff_t r = share_of(rows, number, team); r < share_of(rows, number + 1, team); r++)
      split_row(p->x + (begin + r) * p->x_stride, p->inner, PIECES,
                p->pieces + r / TILE_ROWS * chunks * CHUNK + r % TILE_ROWS * 64);
    wait_for(p->threads);
    for (ptrdiff_t item = 0; item < mine * parts; item++) {
      /* Few rows go through a panel in one go; many meet a part of all panels, so that their pieces stay in the cache. */
      const int few = rows <= BLOCK_ROWS;
      ptrdiff_t panel = first + (few ? item / parts : item % mine), column = panel * PANEL;
      const float *weights = (const float *)p->packed + panel * p->inner * PANEL;
      pieces_work w = {p->pieces, weights, p->bias ? p->bias + column : 0, 0,
                       p->out + begin * p->out_stride + column, rows,
                       p->outer - column < PANEL ? p->outer - column : PANEL, p->inner, p->out_stride};
      if (p->add) w.add = p->add + begin * p->out_stride + column;
      multiply_part(&w, few ? item % parts : item / mine);
    }
    if (block + 1 < blocks) wait_for(p->threads);
  }
  restore_tiles(&before);
}

#endif

/* The bytes that the pieces of a product take; 0 where it does without. */
INLINE ptrdiff_t pieces_of(ptrdiff_t rows, ptrdiff_t inner, int type) {
#if TILE_UNIT
  if (tiles_allowed && type == FLOAT32 && rows >= FEWEST_ROWS) return pieces_size(rows, inner, PIECES);
#endif
  (void)rows, (void)inner, (void)type;
  return 0;
}

/* Compute a thread's share. All threads of the team have to come, each with its number. */
static void multiply_share(const product_work *p, int number, int team) {
#if TILE_UNIT
  if (p->pieces) {
    multiply_by_tiles(p, number, team);
    return;
  }
#endif
  ptrdiff_t panels = (p->outer + PANEL - 1) / PANEL, tiles = (p->rows + MOST_ROWS - 1) / MOST_ROWS;
  ptrdiff_t blocks = (tiles + TILES_AT_ONCE - 1) / TILES_AT_ONCE;
  ptrdiff_t first = blocks * panels * number / team, end = blocks * panels * (number + 1) / team;
  for (ptrdiff_t item = first; item < end; item++) {
    ptrdiff_t block = item / panels, begin = tiles * block / blocks;
    multiply_panel(p, item % panels, begin, tiles * (block + 1) / blocks - begin, tiles);
  }
}

static void multiply_in_thread(void *given) {
  const product_work *p = given;
  multiply_share(p, number_of(p->threads), team_of(p->threads));
}

/* out [rows, outer] = x [rows, inner] times the packed weights, which are numbers of a type, plus bias [outer], which may
   be NULL. True: where there is no memory for pieces, it goes without them. */
int multiply(const float *x, const void *packed, const float *bias, float *out, ptrdiff_t rows, ptrdiff_t inner,
             ptrdiff_t outer, int threads, int type) {
  ptrdiff_t size = pieces_of(rows, inner, type);
  product_work p = {x, inner, packed, type, bias, 0, out, outer, rows, inner, outer, threads,
                    size ? aligned_alloc(64, size) : 0};
  run(multiply_in_thread, &p, threads);
  free(p.pieces);
  return 1;
}
