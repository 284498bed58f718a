/* Products with packed weights. */

#pragma once

#include "threads.h"
#include "tiles.h"

#define TILES_AT_ONCE 16 /* tiles that meet a panel while it is in a core's cache */
#define SUMMED_APART 192 /* products that are summed before they are added to the others */
#define AHEAD 64         /* inputs whose part of a panel is fetched early where few rows meet it */

int panel_width(void) { return PANEL; }

typedef struct {
  const float *x;
  ptrdiff_t x_stride;
  const float *packed; /* [panels, inner, PANEL] */
  const float *bias;   /* [outer] or NULL */
  const float *add;    /* [rows, outer], as out is laid out; may be out, or NULL */
  float *out;
  ptrdiff_t out_stride, rows, inner, outer;
  int threads;
} product_work;

typedef struct {
  const float *x, *panel, *bias, *add;
  float *out;
  ptrdiff_t x_stride, inner, out_stride;
  const char *ahead;
  ptrdiff_t step;
} tile_work;

/* A single sum over a thousand numbers would be rounded a thousand times at its full size: parts are summed apart. */
#define PRODUCT_OF(rows)                                                                                  \
  static void product_of_##rows(const tile_work *t) {                                                       \
    lanes all[rows][2];                                                                                   \
    lanes first = t->bias ? load(t->bias) : splat(0), second = t->bias ? load(t->bias + LANES) : first;   \
    UNROLL                                                                                                \
    for (int r = 0; r < rows; r++) all[r][0] = first, all[r][1] = second;                                 \
    const char *ahead = t->ahead;                                                                         \
    for (ptrdiff_t from = 0; from < t->inner; from += SUMMED_APART) {                                     \
      ptrdiff_t count = t->inner - from < SUMMED_APART ? t->inner - from : SUMMED_APART;                  \
      const float *x = t->x + from, *panel = t->panel + from * PANEL;                                     \
      lanes sums[rows][2];                                                                                \
      UNROLL                                                                                              \
      for (int r = 0; r < rows; r++) sums[r][0] = sums[r][1] = splat(0);                                  \
      if (t->step > 64)                                                                                   \
        tile(rows, x, t->x_stride, 1, panel, PANEL, count, ahead, 2, 4 * PANEL, sums);                    \
      else                                                                                                \
        tile(rows, x, t->x_stride, 1, panel, PANEL, count, ahead, 1, t->step, sums);                      \
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

EACH(PRODUCT_OF)

static void (*const products_by_rows[])(const tile_work *) = ALL(product_of);

/* Multiply the rows of tiles [first, first + tiles) of so many. */
static void multiply_panel(const product_work *p, ptrdiff_t panel, ptrdiff_t first, ptrdiff_t tiles, ptrdiff_t all) {
  ptrdiff_t column = panel * PANEL;
  int edge = p->outer - column < PANEL;
  float wide[MOST_ROWS * PANEL];
  tile_work t = {.panel = p->packed + panel * p->inner * PANEL, .inner = p->inner, .x_stride = p->x_stride};
  t.bias = p->bias && !edge ? p->bias + column : 0;
  /* What this panel's tiles read is in the cache after the first of them; meanwhile the next panel is fetched. */
  t.step = tiles == 1 ? 4 * PANEL : 4 * PANEL / tiles < 64 ? 4 * PANEL / tiles : 64;
  for (ptrdiff_t i = 0; i < tiles; i++) {
    ptrdiff_t row = p->rows * (first + i) / all, rows = p->rows * (first + i + 1) / all - row;
    float *out = p->out + row * p->out_stride + column;
    const float *add = p->add ? p->add + row * p->out_stride + column : 0;
    t.x = p->x + row * p->x_stride;
    t.out = edge ? wide : out, t.out_stride = edge ? PANEL : p->out_stride;
    t.add = edge ? 0 : add;
    t.ahead = (const char *)t.panel + (tiles == 1 ? AHEAD * 4 * PANEL : 4 * PANEL * p->inner + i * t.step * p->inner);
    products_by_rows[rows](&t);
    if (edge)
      for (ptrdiff_t r = 0; r < rows; r++)
        for (ptrdiff_t c = 0; c < p->outer - column; c++)
          out[r * p->out_stride + c] = wide[r * PANEL + c] + (p->bias ? p->bias[column + c] : 0) +
                                       (add ? add[r * p->out_stride + c] : 0);
  }
}

static void multiply_share(const product_work *p, int number, int team) {
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

/* out [rows, outer] = x [rows, inner] times the packed weights, plus bias [outer], which may be NULL */
void multiply(const float *x, const float *packed, const float *bias, float *out, ptrdiff_t rows, ptrdiff_t inner,
              ptrdiff_t outer, int threads) {
  product_work p = {x, inner, packed, bias, 0, out, outer, rows, inner, outer, threads};
  run(multiply_in_thread, &p, threads);
}
