/* Norms, gates, rotations, and sums of exponentials: each row by itself. */

#pragma once

#include "threads.h"

#define ALONE 8192 /* numbers for which one thread is enough */

/* What is computed is float32; with ``half``, what is read and written are bfloat16 numbers. */

INLINE void norm_rows_as(const void *x, const void *weight, float eps, ptrdiff_t width, ptrdiff_t first, ptrdiff_t end,
                         void *out, const int half) {
  for (ptrdiff_t row = first; row < end; row++) {
    const void *from = number_at(x, row * width, half);
    void *to = (void *)number_at(out, row * width, half);
    lanes squares[2] = {splat(0), splat(0)};
    float rest = 0;
    ptrdiff_t i = 0;
    for (; i + PANEL <= width; i += PANEL) {
      lanes a = load_as(from, i, half), b = load_as(from, i + LANES, half);
      squares[0] += a * a, squares[1] += b * b;
    }
    for (ptrdiff_t k = i; k < width; k++) rest += number_as(from, k, half) * number_as(from, k, half);
    float factor = 1 / __builtin_sqrtf((sum_of(squares[0] + squares[1]) + rest) / (float)width + eps);
    for (i = 0; i + LANES <= width; i += LANES)
      store_as(to, i, load_as(from, i, half) * factor * load_as(weight, i, half), half);
    for (; i < width; i++) store_one(to, i, number_as(from, i, half) * factor * number_as(weight, i, half), half);
  }
}

static void norm_rows(const float *x, const float *weight, float eps, ptrdiff_t width, ptrdiff_t first, ptrdiff_t end,
                      float *out) {
  norm_rows_as(x, weight, eps, width, first, end, out, 0);
}

INLINE void gate_columns_as(const void *both, ptrdiff_t width, ptrdiff_t rows, ptrdiff_t first, ptrdiff_t end, void *out,
                            ptrdiff_t out_stride, const int half) {
  for (ptrdiff_t row = 0; row < rows; row++) {
    const void *gate = number_at(both, row * 2 * width, half), *up = number_at(gate, width, half);
    void *to = (void *)number_at(out, row * out_stride, half);
    ptrdiff_t k = first;
    for (; k + LANES <= end; k += LANES) {
      lanes x = load_as(gate, k, half);
      store_as(to, k, x / (1.0f + exp_of(-x)) * load_as(up, k, half), half);
    }
    for (; k < end; k++) {
      float x = number_as(gate, k, half);
      store_one(to, k, x / (1.0f + exp_one(-x)) * number_as(up, k, half), half);
    }
  }
}

/* out[row, k] = silu(gate) * up, of both[row] = gates [width] and ups [width]; out may be both's own memory */
static void gate_columns(const float *both, ptrdiff_t width, ptrdiff_t rows, ptrdiff_t first, ptrdiff_t end, float *out,
                         ptrdiff_t out_stride) {
  gate_columns_as(both, width, rows, first, end, out, out_stride, 0);
}

/* Turn a head by its position, from x to out, which may be the same. */
INLINE void turn_as(const void *x, const void *cos, const void *sin, ptrdiff_t width, void *out, const int half_type) {
  ptrdiff_t half = width / 2, i = 0;
  for (; i + LANES <= half; i += LANES) {
    lanes low = load_as(x, i, half_type), high = load_as(x, half + i, half_type);
    store_as(out, i, low * load_as(cos, i, half_type) - high * load_as(sin, i, half_type), half_type);
    store_as(out, half + i, high * load_as(cos, half + i, half_type) + low * load_as(sin, half + i, half_type), half_type);
  }
  for (; i < half; i++) {
    float low = number_as(x, i, half_type), high = number_as(x, half + i, half_type);
    store_one(out, i, low * number_as(cos, i, half_type) - high * number_as(sin, i, half_type), half_type);
    store_one(out, half + i, high * number_as(cos, half + i, half_type) + low * number_as(sin, half + i, half_type),
              half_type);
  }
}

static void turn(const float *x, const float *cos, const float *sin, ptrdiff_t width, float *out) {
  turn_as(x, cos, sin, width, out, 0);
}

#define ADDED_AT_ONCE 4096 /* exponentials that are summed in float32, in lanes, before they go to a float64 sum */

/* The largest number of a row, and of the exponentials from there, or from 0 where it is infinite, the sum, which is NaN
   where one of the numbers is. Return where the largest is first, or the first NaN. */
static int64_t sum_exponentials(const float *x, ptrdiff_t width, float *most, double *sum) {
  lanes largest[2] = {splat(-__builtin_inff()), splat(-__builtin_inff())};
  ptrdiff_t i = 0;
  for (; i + PANEL <= width; i += PANEL)
    largest[0] = larger(load(x + i), largest[0]), largest[1] = larger(load(x + i + LANES), largest[1]);
  largest[0] = larger(largest[0], largest[1]);
  float best = largest[0][0];
  for (int k = 1; k < LANES; k++) best = largest[0][k] > best ? largest[0][k] : best;
  for (; i < width; i++) best = x[i] > best ? x[i] : best;
  float from = __builtin_isinf(best) ? 0 : best;
  double all = 0;
  for (ptrdiff_t first = 0; first < width; first += ADDED_AT_ONCE) {
    ptrdiff_t end = width - first < ADDED_AT_ONCE ? width : first + ADDED_AT_ONCE;
    lanes part[2] = {splat(0), splat(0)};
    for (i = first; i + PANEL <= end; i += PANEL)
      part[0] += exp_of(load(x + i) - from), part[1] += exp_of(load(x + i + LANES) - from);
    all += sum_of(part[0] + part[1]);
    for (; i < end; i++) all += exp_one(x[i] - from);
  }
  *most = from;
  *sum = all;
  int64_t at = 0;
  if (all == all)
    while (x[at] != best) at++;
  else
    while (x[at] == x[at]) at++;
  return at;
}

typedef struct {
  const void *x, *weight, *cos, *sin; /* for turns, weight: norms [heads, width], or NULL */
  float eps;
  void *out;
  ptrdiff_t width, rows, stride, heads, turns;
  float *most;
  double *sums;
  int64_t *places;
  int half, threads;
} rows_work;

static void sum_in_thread(void *given) {
  const rows_work *r = given;
  int number = number_of(r->threads), team = team_of(r->threads);
  for (ptrdiff_t row = share_of(r->rows, number, team); row < share_of(r->rows, number + 1, team); row++)
    r->places[row] = sum_exponentials((const float *)r->x + row * r->width, r->width, r->most + row, r->sums + row);
}

static void normalize_in_thread(void *given) {
  const rows_work *r = given;
  int number = number_of(r->threads), team = team_of(r->threads);
  ptrdiff_t first = share_of(r->rows, number, team), end = share_of(r->rows, number + 1, team);
  if (r->half)
    norm_rows_as(r->x, r->weight, r->eps, r->width, first, end, r->out, 1);
  else
    norm_rows(r->x, r->weight, r->eps, r->width, first, end, r->out);
}

static void gate_in_thread(void *given) {
  const rows_work *r = given;
  int number = number_of(r->threads), team = team_of(r->threads);
  ptrdiff_t first = share_of(r->rows, number, team), end = share_of(r->rows, number + 1, team);
  const void *from = number_at(r->x, first * 2 * r->width, r->half);
  void *to = (void *)number_at(r->out, first * r->width, r->half);
  if (r->half)
    gate_columns_as(from, r->width, end - first, 0, r->width, to, r->width, 1);
  else
    gate_columns(from, r->width, end - first, 0, r->width, to, r->width);
}

static void turn_in_thread(void *given) {
  const rows_work *r = given;
  int number = number_of(r->threads), team = team_of(r->threads);
  for (ptrdiff_t row = share_of(r->rows, number, team); row < share_of(r->rows, number + 1, team); row++) {
    ptrdiff_t at = row % r->turns * r->width;
    for (ptrdiff_t head = 0; head < r->heads; head++) {
      void *x = (void *)number_at(r->out, row * r->stride + head * r->width, r->half);
      const void *cos = number_at(r->cos, at, r->half), *sin = number_at(r->sin, at, r->half);
      if (r->weight) {
        const void *weight = number_at(r->weight, head * r->width, r->half);
        if (r->half)
          norm_rows_as(x, weight, r->eps, r->width, 0, 1, x, 1);
        else
          norm_rows(x, weight, r->eps, r->width, 0, 1, x);
      }
      if (r->half)
        turn_as(x, cos, sin, r->width, x, 1);
      else
        turn(x, cos, sin, r->width, x);
    }
  }
}

static void run_rows(void (*work)(void *), rows_work *r, int threads) {
  r->threads = r->rows * r->width < ALONE ? 1 : threads;
  run(work, r, r->threads);
}

/* out [rows, width] = x [rows, width] by their root mean square, times weight [width] */
void normalize(const void *x, const void *weight, float eps, ptrdiff_t width, ptrdiff_t rows, void *out, int half,
               int threads) {
  rows_work r = {.x = x, .weight = weight, .eps = eps, .width = width, .rows = rows, .out = out, .half = half};
  run_rows(normalize_in_thread, &r, threads);
}

/* out [rows, width] = silu(gates) times ups, of both [rows, gates and ups] */
void gate(const void *both, ptrdiff_t width, ptrdiff_t rows, void *out, int half, int threads) {
  rows_work r = {.x = both, .width = width, .rows = rows, .out = out, .half = half};
  run_rows(gate_in_thread, &r, threads);
}

/* Turn the first heads of tokens [rows, stride] where they lie; cos and sin [turns, width] are those of the first
   tokens, of as many after those, and so on. Before it each head is divided by its root mean square, and multiplied by
   its norm of [heads, width], unless that is NULL. */
void turn_heads(void *x, ptrdiff_t stride, ptrdiff_t heads, ptrdiff_t width, ptrdiff_t rows, const void *cos,
                const void *sin, ptrdiff_t turns, const void *norms, float eps, int half, int threads) {
  rows_work r = {.out = x, .stride = stride, .heads = heads, .width = width, .rows = rows, .cos = cos, .sin = sin,
               .turns = turns, .weight = norms, .eps = eps, .half = half};
  run_rows(turn_in_thread, &r, threads);
}

/* Of each row of x [rows, width], which has numbers: what ``sum_exponentials`` finds */
void sum_rows(const float *x, ptrdiff_t width, ptrdiff_t rows, float *most, double *sums, int64_t *places, int threads) {
  rows_work r = {.x = x, .width = width, .rows = rows, .most = most, .sums = sums, .places = places};
  run_rows(sum_in_thread, &r, threads);
}
