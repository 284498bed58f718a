/* Norms, gates and rotations: each row by itself. */

#pragma once

#include "threads.h"

#define ALONE 8192 /* numbers for which one thread is enough */

static void norm_rows(const float *x, const float *weight, float eps, ptrdiff_t width, ptrdiff_t first, ptrdiff_t end,
                      float *out) {
  for (ptrdiff_t row = first; row < end; row++) {
    const float *from = x + row * width;
    float *to = out + row * width;
    lanes squares[2] = {splat(0), splat(0)};
    float rest = 0;
    ptrdiff_t i = 0;
    for (; i + PANEL <= width; i += PANEL) {
      lanes a = load(from + i), b = load(from + i + LANES);
      squares[0] += a * a, squares[1] += b * b;
    }
    for (ptrdiff_t k = i; k < width; k++) rest += from[k] * from[k];
    float factor = 1 / __builtin_sqrtf((sum_of(squares[0] + squares[1]) + rest) / (float)width + eps);
    for (i = 0; i + LANES <= width; i += LANES) store(to + i, load(from + i) * factor * load(weight + i));
    for (; i < width; i++) to[i] = from[i] * factor * weight[i];
  }
}

/* out[row, k] = silu(gate) * up, of both[row] = gates [width] and ups [width]; out may be both's own memory */
static void gate_columns(const float *both, ptrdiff_t width, ptrdiff_t rows, ptrdiff_t first, ptrdiff_t end, float *out,
                         ptrdiff_t out_stride) {
  for (ptrdiff_t row = 0; row < rows; row++) {
    const float *gate = both + row * 2 * width, *up = gate + width;
    float *to = out + row * out_stride;
    ptrdiff_t k = first;
    for (; k + LANES <= end; k += LANES) {
      lanes x = load(gate + k);
      store(to + k, x / (1.0f + exp_of(-x)) * load(up + k));
    }
    for (; k < end; k++) to[k] = gate[k] / (1.0f + exp_one(-gate[k])) * up[k];
  }
}

/* Turn a head by its position, from x to out, which may be the same. */
static void turn(const float *x, const float *cos, const float *sin, ptrdiff_t width, float *out) {
  ptrdiff_t half = width / 2, i = 0;
  for (; i + LANES <= half; i += LANES) {
    lanes low = load(x + i), high = load(x + half + i);
    store(out + i, low * load(cos + i) - high * load(sin + i));
    store(out + half + i, high * load(cos + half + i) + low * load(sin + half + i));
  }
  for (; i < half; i++) {
    float low = x[i], high = x[half + i];
    out[i] = low * cos[i] - high * sin[i];
    out[half + i] = high * cos[half + i] + low * sin[half + i];
  }
}

typedef struct {
  const float *x, *weight, *cos, *sin;
  float eps, *out;
  ptrdiff_t width, rows, stride, heads, turns;
  int threads;
} rows_work;

static void normalize_in_thread(void *given) {
  const rows_work *r = given;
  int number = number_of(r->threads), team = team_of(r->threads);
  norm_rows(r->x, r->weight, r->eps, r->width, share_of(r->rows, number, team),
            share_of(r->rows, number + 1, team), r->out);
}

static void gate_in_thread(void *given) {
  const rows_work *r = given;
  int number = number_of(r->threads), team = team_of(r->threads);
  ptrdiff_t first = share_of(r->rows, number, team), end = share_of(r->rows, number + 1, team);
  gate_columns(r->x + first * 2 * r->width, r->width, end - first, 0, r->width, r->out + first * r->width, r->width);
}

static void turn_in_thread(void *given) {
  const rows_work *r = given;
  int number = number_of(r->threads), team = team_of(r->threads);
  for (ptrdiff_t row = share_of(r->rows, number, team); row < share_of(r->rows, number + 1, team); row++) {
    ptrdiff_t at = row % r->turns * r->width;
    for (ptrdiff_t head = 0; head < r->heads; head++) {
      float *x = r->out + row * r->stride + head * r->width;
      turn(x, r->cos + at, r->sin + at, r->width, x);
    }
  }
}

static void run_rows(void (*work)(void *), rows_work *r, int threads) {
  r->threads = r->rows * r->width < ALONE ? 1 : threads;
  run(work, r, r->threads);
}

/* out [rows, width] = x [rows, width] by their root mean square, times weight [width] */
void normalize(const float *x, const float *weight, float eps, ptrdiff_t width, ptrdiff_t rows, float *out, int threads) {
  rows_work r = {.x = x, .weight = weight, .eps = eps, .width = width, .rows = rows, .out = out};
  run_rows(normalize_in_thread, &r, threads);
}

/* out [rows, width] = silu(gates) times ups, of both [rows, gates and ups] */
void gate(const float *both, ptrdiff_t width, ptrdiff_t rows, float *out, int threads) {
  rows_work r = {.x = both, .width = width, .rows = rows, .out = out};
  run_rows(gate_in_thread, &r, threads);
}

/* Turn the first heads of tokens [rows, stride] where they lie; cos and sin [turns, width] are those of the first
   tokens, of as many after those, and so on. */
void turn_heads(float *x, ptrdiff_t stride, ptrdiff_t heads, ptrdiff_t width, ptrdiff_t rows, const float *cos,
                const float *sin, ptrdiff_t turns, int threads) {
  rows_work r = {.out = x, .stride = stride, .heads = heads, .width = width, .rows = rows, .cos = cos, .sin = sin,
               .turns = turns};
  run_rows(turn_in_thread, &r, threads);
}
