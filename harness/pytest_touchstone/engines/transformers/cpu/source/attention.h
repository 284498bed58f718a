/* Attention of a few tokens per row

   Queries that share a key's head are laid side by side. Those of all rows meet the prefix's keys in tiles; those of
   a row meet its own. Each part gives values, and for each query the largest score and the sum of the exponentials
   from there; the parts are merged at the end. */

#pragma once

#include "tiles.h"

#define KEYS_AT_ONCE 192  /* keys whose scores are there at once */
#define QUERIES_AT_ONCE 4 /* queries that share a key as it is read */
#define KEYS_AHEAD 16     /* own keys that are fetched early */
#define SHARE_OF_KEYS 128 /* keys from which it is worth to share them among threads */
#define TASKS_PER_THREAD 4

typedef struct {
  void *keys, *values;                          /* [rows, heads, columns, width] */
  const void *prefix_keys, *prefix_values;      /* [heads, past, width], or NULL */
  const float *mask;                            /* [rows, tokens, until]: added to own scores */
} layer_cache;

typedef struct {
  ptrdiff_t rows, first;              /* the rows of this cache, and the first one in the pass */
  ptrdiff_t until, past;              /* columns that may be seen, tokens of the prefix */
  ptrdiff_t row_stride, head_stride;  /* of own keys and values */
  ptrdiff_t key_stride, value_stride; /* of heads of the prefix's keys, and of its values */
  ptrdiff_t mask_stride;              /* of rows x tokens */
  const int64_t *columns;             /* [rows, tokens]: where new keys go */
} cache_view;

typedef struct {
  ptrdiff_t rows, tokens, heads, groups, width; /* heads: of keys; groups: queries per key */
  float scale;
  const float *queries; /* [rows, tokens, heads, groups, width], with rows x tokens apart by stride */
  ptrdiff_t query_stride;
  float *parts; /* [parts, queries, width + 2] */
  float *out;   /* [rows, tokens, heads, groups, width] */
  int threads;
  int half; /* keys and values are bfloat16 numbers, else float32 */
} attention_work;

INLINE ptrdiff_t part_size(const attention_work *a) { return a->rows * a->tokens * a->heads * a->groups * (a->width + 2); }

/* A query's number among all: its values are at parts + number * (width + 2). */
INLINE ptrdiff_t query_number(const attention_work *a, ptrdiff_t row, ptrdiff_t head, ptrdiff_t at) {
  ptrdiff_t token = at / a->groups;
  return ((row * a->tokens + token) * a->heads + head) * a->groups + at % a->groups;
}

INLINE const float *query_at(const attention_work *a, ptrdiff_t row, ptrdiff_t head, ptrdiff_t at) {
  ptrdiff_t token = at / a->groups;
  return a->queries + (row * a->tokens + token) * a->query_stride + (head * a->groups + at % a->groups) * a->width;
}

#define SCORES_OF(rows)                                                                                             \
  static void scores_of_##rows(const float *keys, ptrdiff_t stride, ptrdiff_t width, const float *panel, float *out) { \
    lanes sums[rows][2];                                                                                            \
    UNROLL                                                                                                          \
    for (int r = 0; r < rows; r++) sums[r][0] = sums[r][1] = splat(0);                                              \
    tile(rows, keys, stride, 1, panel, PANEL, width, (const char *)(keys + 2 * rows * width), 1, 4 * rows, sums);   \
    UNROLL                                                                                                          \
    for (int r = 0; r < rows; r++) store(out + r * PANEL, sums[r][0]), store(out + r * PANEL + LANES, sums[r][1]);  \
  }                                                                                                                 \
  static void values_of_##rows(const float *weights, ptrdiff_t width, const float *values, ptrdiff_t stride,        \
                               ptrdiff_t keys, float *out) {                                                        \
    lanes sums[rows][2];                                                                                            \
    UNROLL                                                                                                          \
    for (int r = 0; r < rows; r++) sums[r][0] = load(out + r * width), sums[r][1] = load(out + r * width + LANES);  \
    tile(rows, weights, 1, PANEL, values, stride, keys, 0, 0, 0, sums);                                             \
    UNROLL                                                                                                          \
    for (int r = 0; r < rows; r++) store(out + r * width, sums[r][0]), store(out + r * width + LANES, sums[r][1]);  \
  }

EACH(SCORES_OF)

static void (*const scores_by_rows[])(const float *, ptrdiff_t, ptrdiff_t, const float *, float *) = ALL(scores_of);
static void (*const values_by_rows[])(const float *, ptrdiff_t, const float *, ptrdiff_t, ptrdiff_t, float *) = ALL(values_of);

/* What queries that lie side by side have found: values, the largest scores, and the sums of the exponentials from
   there. */
typedef struct {
  float *values; /* [PANEL, width] */
  lanes most[2], all[2];
  ptrdiff_t keys; /* met so far */
} panel_result;

INLINE panel_result nothing_found(float *values, ptrdiff_t width) {
  for (ptrdiff_t i = 0; i < PANEL * width; i++) values[i] = 0;
  return (panel_result){values, {splat(-3e38f), splat(-3e38f)}, {splat(0), splat(0)}, 0};
}

/* Keys [tokens, width] and values of a head, with tokens apart by strides. */
typedef struct {
  const void *keys, *values;
  ptrdiff_t key_stride, value_stride;
  int half; /* they are bfloat16 numbers */
} head_view;

/* Return numbers [keys, width] as float32 ones, with keys apart by stride: there, or in ``room``. */
INLINE const float *widen(const void *from, ptrdiff_t stride, ptrdiff_t keys, ptrdiff_t width, const int half, float *room,
                          ptrdiff_t *apart) {
  *apart = half ? width : stride;
  if (!half) return from;
  for (ptrdiff_t k = 0; k < keys; k++) {
    const void *row = number_at(from, k * stride, half);
    ptrdiff_t i = 0;
    for (; i + LANES <= width; i += LANES) store(room + k * width + i, load_as(row, i, half));
    for (; i < width; i++) room[k * width + i] = number_as(row, i, half);
  }
  return room;
}

/* Attend for so many queries of a panel [width, PANEL] to more keys of a head, the first ones there. added [keys, PANEL]
   is what a mask adds to the scores, or NULL. */
static void attend_panel(const float *panel, ptrdiff_t count, ptrdiff_t width, const head_view *h, ptrdiff_t keys,
                         const float *added, panel_result *f) {
  const ptrdiff_t room = h->half ? KEYS_AT_ONCE * width : 1;
  float scores[KEYS_AT_ONCE * PANEL], wide_keys[room], wide_values[room];
  float *sums = f->values;
  for (ptrdiff_t first = 0; first < keys; first += KEYS_AT_ONCE) {
    ptrdiff_t some = keys - first < KEYS_AT_ONCE ? keys - first : KEYS_AT_ONCE;
    ptrdiff_t key_stride, value_stride;
    const float *near = widen(number_at(h->keys, first * h->key_stride, h->half), h->key_stride, some, width, h->half,
                              wide_keys, &key_stride);
    const float *from = widen(number_at(h->values, first * h->value_stride, h->half), h->value_stride, some, width,
                              h->half, wide_values, &value_stride);
    lanes before[2] = {f->most[0], f->most[1]};
    for (ptrdiff_t k = 0; k < some; k += MOST_ROWS) {
      ptrdiff_t rows = some - k < MOST_ROWS ? some - k : MOST_ROWS;
      for (ptrdiff_t r = k; r < k + rows; r++) fetch(from + r * value_stride, width);
      scores_by_rows[rows](near + k * key_stride, key_stride, width, panel, scores + k * PANEL);
    }
    for (int v = 0; v < 2; v++) {
      float *column = scores + v * LANES;
      lanes most = before[v], sum = splat(0);
      for (ptrdiff_t k = 0; k < some; k++) {
        lanes score = load(column + k * PANEL);
        if (added) store(column + k * PANEL, score += load(added + (first + k) * PANEL + v * LANES));
        most = larger(most, score);
      }
      for (ptrdiff_t k = 0; k < some; k++) {
        lanes weight = exp_of(load(column + k * PANEL) - most);
        store(column + k * PANEL, weight);
        sum += weight;
      }
      lanes factor = exp_of(before[v] - most);
      f->most[v] = most;
      f->all[v] = f->all[v] * factor + sum;
      if (f->keys)
        for (int q = 0; q < LANES; q++)
          for (ptrdiff_t k = 0; k < width; k++) sums[(v * LANES + q) * width + k] *= factor[q];
    }
    for (ptrdiff_t q = 0; q < count; q += MOST_ROWS) {
      ptrdiff_t rows = count - q < MOST_ROWS ? count - q : MOST_ROWS, column = 0;
      for (; column + PANEL <= width; column += PANEL)
        values_by_rows[rows](scores + q, width, from + column, value_stride, some, sums + q * width + column);
      for (; column < width; column++)
        for (ptrdiff_t r = q; r < q + rows; r++)
          for (ptrdiff_t k = 0; k < some; k++)
            sums[r * width + column] += scores[k * PANEL + r] * from[k * value_stride + column];
    }
    f->keys += some;
  }
}

/* Attend for up to PANEL queries of a head to keys [first, end) of the prefix. */
static void attend_prefix(const attention_work *a, const cache_view *c, const layer_cache *l, ptrdiff_t head,
                          ptrdiff_t panel, ptrdiff_t first, ptrdiff_t end, float *parts) {
  ptrdiff_t width = a->width, each = a->tokens * a->groups, total = c->rows * each;
  ptrdiff_t begin = panel * PANEL, count = total - begin < PANEL ? total - begin : PANEL;
  float packed[width * PANEL], sums[PANEL * width];
  for (ptrdiff_t q = 0; q < PANEL; q++) {
    const float *from = q < count ? query_at(a, c->first + (begin + q) / each, head, (begin + q) % each) : 0;
    for (ptrdiff_t k = 0; k < width; k++) packed[k * PANEL + q] = from ? from[k] * a->scale : 0;
  }
  head_view h = {number_at(l->prefix_keys, head * c->key_stride + first * width, a->half),
               number_at(l->prefix_values, head * c->value_stride + first * width, a->half), width, width, a->half};
  panel_result f = nothing_found(sums, width);
  attend_panel(packed, count, width, &h, end - first, 0, &f);
  for (ptrdiff_t q = 0; q < count; q++) {
    ptrdiff_t number = query_number(a, c->first + (begin + q) / each, head, (begin + q) % each);
    float *to = parts + number * (width + 2);
    for (ptrdiff_t k = 0; k < width; k++) to[k] = sums[q * width + k];
    to[width] = f.most[q / LANES][q % LANES], to[width + 1] = f.all[q / LANES][q % LANES];
  }
}

/* Attend for a few queries of a row and a head to own keys [first, end). */
INLINE void attend_own_as(const attention_work *a, const cache_view *c, const layer_cache *l, ptrdiff_t row, ptrdiff_t head,
                          ptrdiff_t first, ptrdiff_t end, float *parts, const int half) {
  ptrdiff_t width = a->width, each = a->tokens * a->groups, whole_width = width / LANES * LANES;
  const void *keys = number_at(l->keys, row * c->row_stride + head * c->head_stride, half);
  const void *values = number_at(l->values, row * c->row_stride + head * c->head_stride, half);
  const float *mask = l->mask + row * a->tokens * c->mask_stride;
  float scores[QUERIES_AT_ONCE][KEYS_AT_ONCE];
  for (ptrdiff_t at = 0; at < each; at += QUERIES_AT_ONCE) {
    const float *queries[QUERIES_AT_ONCE];
    float *to[QUERIES_AT_ONCE], most[QUERIES_AT_ONCE], all[QUERIES_AT_ONCE];
    ptrdiff_t count = each - at < QUERIES_AT_ONCE ? each - at : QUERIES_AT_ONCE;
    for (ptrdiff_t q = 0; q < QUERIES_AT_ONCE; q++) {
      ptrdiff_t same = at + (q < count ? q : count - 1); /* fill up with the last one */
      queries[q] = query_at(a, c->first + row, head, same);
      to[q] = parts + query_number(a, c->first + row, head, same) * (width + 2);
      most[q] = -3e38f, all[q] = 0;
      for (ptrdiff_t k = 0; k < width; k++) to[q][k] = 0;
    }
    for (ptrdiff_t begin = first; begin < end; begin += KEYS_AT_ONCE) {
      ptrdiff_t some = end - begin < KEYS_AT_ONCE ? end - begin : KEYS_AT_ONCE;
      for (ptrdiff_t k = 0; k < some; k++) {
        const void *key = number_at(keys, (begin + k) * width, half);
        fetch(number_at(key, KEYS_AHEAD * width, half), half ? width / 2 : width);
        fetch(number_at(values, (begin + k) * width, half), half ? width / 2 : width);
        lanes found[QUERIES_AT_ONCE];
        UNROLL
        for (int q = 0; q < QUERIES_AT_ONCE; q++) found[q] = splat(0);
        for (ptrdiff_t i = 0; i < whole_width; i += LANES) {
          lanes numbers = load_as(key, i, half);
          UNROLL
          for (int q = 0; q < QUERIES_AT_ONCE; q++) found[q] += numbers * load(queries[q] + i);
        }
        UNROLL
        for (int q = 0; q < QUERIES_AT_ONCE; q++) {
          float score = sum_of(found[q]);
          for (ptrdiff_t i = whole_width; i < width; i++) score += number_as(key, i, half) * queries[q][i];
          scores[q][k] = score;
        }
      }
      ptrdiff_t filled = (some + LANES - 1) / LANES * LANES;
      for (ptrdiff_t q = 0; q < count; q++) {
        const float *added = mask + (at + q) / a->groups * c->mask_stride + begin;
        lanes largest = splat(most[q]), sum = splat(0);
        for (ptrdiff_t k = 0; k < some; k++) scores[q][k] = scores[q][k] * a->scale + added[k];
        for (ptrdiff_t k = some; k < filled; k++) scores[q][k] = -3e38f;
        for (ptrdiff_t k = 0; k < filled; k += LANES) largest = larger(largest, load(&scores[q][k]));
        float before = most[q];
        for (int i = 0; i < LANES; i++) most[q] = largest[i] > most[q] ? largest[i] : most[q];
        for (ptrdiff_t k = 0; k < filled; k += LANES) {
          lanes weight = exp_of(load(&scores[q][k]) - most[q]);
          store(&scores[q][k], weight);
          sum += weight;
        }
        float factor = exp_one(before - most[q]);
        all[q] = all[q] * factor + sum_of(sum);
        if (begin > first)
          for (ptrdiff_t k = 0; k < width; k++) to[q][k] *= factor;
      }
      for (ptrdiff_t q = count; q < QUERIES_AT_ONCE; q++)
        for (ptrdiff_t k = 0; k < some; k++) scores[q][k] = 0;
      const void *from = number_at(values, begin * width, half);
      ptrdiff_t i = 0;
      for (; i + PANEL <= width; i += PANEL) {
        lanes found[QUERIES_AT_ONCE][2];
        UNROLL
        for (int q = 0; q < QUERIES_AT_ONCE; q++) found[q][0] = load(to[q] + i), found[q][1] = load(to[q] + i + LANES);
        for (ptrdiff_t k = 0; k < some; k++) {
          lanes one = load_as(from, k * width + i, half), two = load_as(from, k * width + i + LANES, half);
          UNROLL
          for (int q = 0; q < QUERIES_AT_ONCE; q++)
            found[q][0] += scores[q][k] * one, found[q][1] += scores[q][k] * two;
        }
        for (ptrdiff_t q = 0; q < count; q++) store(to[q] + i, found[q][0]), store(to[q] + i + LANES, found[q][1]);
      }
      for (; i < width; i++)
        for (ptrdiff_t q = 0; q < count; q++)
          for (ptrdiff_t k = 0; k < some; k++) to[q][i] += scores[q][k] * number_as(from, k * width + i, half);
    }
    for (ptrdiff_t q = 0; q < count; q++) to[q][width] = most[q], to[q][width + 1] = all[q];
  }
}

static void attend_own(const attention_work *a, const cache_view *c, const layer_cache *l, ptrdiff_t row, ptrdiff_t head,
                       ptrdiff_t first, ptrdiff_t end, float *parts) {
  if (a->half)
    attend_own_as(a, c, l, row, head, first, end, parts, 1);
  else
    attend_own_as(a, c, l, row, head, first, end, parts, 0);
}

/* Write what the parts of queries [first, end) make together. */
static void merge(const attention_work *a, ptrdiff_t count, ptrdiff_t first, ptrdiff_t end) {
  ptrdiff_t width = a->width, size = part_size(a);
  for (ptrdiff_t query = first; query < end; query++) {
    const float *part = a->parts + query * (width + 2);
    float *out = a->out + query * width, most = -3e38f, all = 0;
    for (ptrdiff_t i = 0; i < count; i++) most = part[i * size + width] > most ? part[i * size + width] : most;
    for (ptrdiff_t i = 0; i < count; i++) all += part[i * size + width + 1] * exp_one(part[i * size + width] - most);
    for (ptrdiff_t i = 0; i < count; i++) {
      float factor = exp_one(part[i * size + width] - most) / all;
      for (ptrdiff_t k = 0; k < width; k++) out[k] = (i ? out[k] : 0) + factor * part[i * size + k];
    }
  }
}

typedef struct {
  ptrdiff_t panels, prefix_parts, own_parts, prefix_tasks, tasks;
} attention_plan;

INLINE ptrdiff_t shares(ptrdiff_t tokens, ptrdiff_t tasks, int threads) {
  ptrdiff_t most = (tokens + SHARE_OF_KEYS - 1) / SHARE_OF_KEYS, wanted = (TASKS_PER_THREAD * threads + tasks - 1) / tasks;
  return most < wanted ? most : wanted;
}

static attention_plan work_on(const attention_work *a, const cache_view *c) {
  attention_plan w;
  w.panels = (c->rows * a->tokens * a->groups + PANEL - 1) / PANEL;
  w.prefix_parts = c->past ? shares(c->past, a->heads * w.panels, a->threads) : 0;
  w.own_parts = shares(c->until, a->heads * c->rows, a->threads);
  w.prefix_tasks = a->heads * w.panels * w.prefix_parts;
  w.tasks = w.prefix_tasks + a->heads * c->rows * w.own_parts;
  return w;
}

/* The parts that a pass can need at most. */
static ptrdiff_t most_parts(const attention_work *a, const cache_view *caches, ptrdiff_t count) {
  ptrdiff_t most = 0;
  for (ptrdiff_t i = 0; i < count; i++) {
    attention_plan w = work_on(a, caches + i);
    if (w.prefix_parts + w.own_parts > most) most = w.prefix_parts + w.own_parts;
  }
  return most;
}

static void attend_task(const attention_work *a, const cache_view *c, const layer_cache *l, const attention_plan *w, ptrdiff_t task) {
  ptrdiff_t size = part_size(a);
  if (task < w->prefix_tasks) {
    ptrdiff_t part = task % w->prefix_parts, panel = task / w->prefix_parts % w->panels;
    attend_prefix(a, c, l, task / w->prefix_parts / w->panels, panel, c->past * part / w->prefix_parts,
                  c->past * (part + 1) / w->prefix_parts, a->parts + part * size);
    return;
  }
  task -= w->prefix_tasks;
  ptrdiff_t part = task % w->own_parts, head = task / w->own_parts % a->heads, row = task / w->own_parts / a->heads;
  ptrdiff_t first = c->until * part / w->own_parts, end = c->until * (part + 1) / w->own_parts, seen = first;
  for (ptrdiff_t token = 0; token < a->tokens; token++) {
    const float *mask = l->mask + (row * a->tokens + token) * c->mask_stride;
    ptrdiff_t last = end;
    while (last > seen && mask[last - 1] < -1e30f) last--;
    seen = last;
  }
  attend_own(a, c, l, row, head, first, seen, a->parts + (w->prefix_parts + part) * size);
}
