/* Tiles, from which products and attention are made. */

#pragma once

#include "vectors.h"

/* Tiles: sums over k of x[row, k] and panel[k, column], for a few rows and PANEL columns of a type */

INLINE void tile_as(const int type, const int rows, const float *x, ptrdiff_t row_stride, ptrdiff_t k_stride,
                    const void *panel, ptrdiff_t panel_stride, ptrdiff_t inner, const char *ahead, const int lines,
                    ptrdiff_t step, lanes sums[][2]) {
  const float *at[4]; /* every third row; the others are reached by one stride or two */
  UNROLL
  for (int i = 0; i < (rows + 2) / 3; i++) at[i] = x + 3 * i * row_stride;
  for (ptrdiff_t k = 0; k < inner; k++) {
    lanes a = load_as(panel, 0, type), b = load_as(panel, LANES, type);
    if (lines > 0) __builtin_prefetch(ahead, 0, 2);
    if (lines > 1) __builtin_prefetch(ahead + 64, 0, 2);
    ahead += step;
    panel = number_at(panel, panel_stride, type);
    UNROLL
    for (int r = 0; r < rows; r++) {
      lanes number = splat(at[r / 3][r % 3 * row_stride]);
      sums[r][0] += number * a;
      sums[r][1] += number * b;
    }
    UNROLL
    for (int i = 0; i < (rows + 2) / 3; i++) at[i] += k_stride;
  }
}

INLINE void tile(const int rows, const float *x, ptrdiff_t row_stride, ptrdiff_t k_stride, const float *panel,
                 ptrdiff_t panel_stride, ptrdiff_t inner, const char *ahead, const int lines, ptrdiff_t step,
                 lanes sums[][2]) {
  tile_as(FLOAT32, rows, x, row_stride, k_stride, panel, panel_stride, inner, ahead, lines, step, sums);
}

/* Makes of something for each number of rows of a tile, and tables of them by that number. */
#if MOST_ROWS == 12
#define EACH(make) \
  make(1) make(2) make(3) make(4) make(5) make(6) make(7) make(8) make(9) make(10) make(11) make(12)
#define ALL(name) \
  {0, name##_1, name##_2, name##_3, name##_4, name##_5, name##_6, name##_7, name##_8, name##_9, name##_10, name##_11, \
   name##_12}
#else
#define EACH(make) make(1) make(2) make(3) make(4) make(5) make(6)
#define ALL(name) {0, name##_1, name##_2, name##_3, name##_4, name##_5, name##_6}
#endif
