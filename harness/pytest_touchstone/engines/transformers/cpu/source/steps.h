/* A step: a few tokens for each row through all layers of Llama's form */

#pragma once

#include "attention.h"
#include "halves.h"
#include "products.h"
#include "rows.h"

typedef struct {
  const float *input_norm, *post_norm;
  const void *qkv; /* packed */
  const float *qkv_bias; /* or NULL */
  const void *o;
  const float *o_bias;
  const void *gate_up;
  const float *gate_up_bias;
  const void *down;
  const float *down_bias;
  const float *query_norm, *key_norm; /* of each head, or NULL */
  float input_eps, post_eps, scale, head_eps;
} layer_weights;

typedef struct {
  ptrdiff_t layers, caches, rows, tokens, hidden, features, heads, groups, width;
  const layer_weights *layer;
  const cache_view *cache;
  const layer_cache *held; /* [layers, caches] */
  const float *cos, *sin;  /* [rows, tokens, width] */
  float *states;           /* [rows, tokens, hidden]: embedded tokens, then what the last layer gives */
  float *scratch;
  ptrdiff_t threads;
  ptrdiff_t next; /* the next task of attention */
  ptrdiff_t half_pieces; /* with bfloat16 weights, the pieces of a number that they are multiplied with, else 0 */
  ptrdiff_t half_cache;  /* keys and values are bfloat16 numbers */
  ptrdiff_t type;        /* without pieces, that of the weights, which are multiplied as float32 numbers */
} step_work;

typedef struct {
  float *normed, *heads, *attended, *both, *parts;
  char *pieces; /* of a product's rows; NULL: without */
  ptrdiff_t heads_width, attended_width, size;
} scratch_view;

static attention_work attention_in(const step_work *s, const scratch_view *m, float scale) {
  return (attention_work){s->rows, s->tokens, s->heads, s->groups, s->width, scale, m->heads, m->heads_width, m->parts,
                        m->attended, (int)s->threads, (int)s->half_cache};
}

static scratch_view scratch_in(const step_work *s) {
  ptrdiff_t tokens = s->rows * s->tokens;
  scratch_view m = {.heads_width = s->heads * (s->groups + 2) * s->width, .attended_width = s->heads * s->groups * s->width};
  attention_work a = attention_in(s, &m, 1);
  m.normed = s->scratch;
  m.heads = m.normed + tokens * s->hidden;
  m.attended = m.heads + tokens * m.heads_width;
  m.both = m.attended + tokens * m.attended_width;
  m.parts = m.both + tokens * 2 * s->features;
  float *end = m.parts + most_parts(&a, s->cache, s->caches) * part_size(&a);
  ptrdiff_t widest = s->hidden > s->features ? s->hidden : s->features;
  if (m.attended_width > widest) widest = m.attended_width;
  ptrdiff_t size = s->half_pieces ? pieces_size(tokens, widest, (int)s->half_pieces)
                                  : pieces_of(tokens, widest, (int)s->type);
  m.pieces = size ? (char *)(((uintptr_t)end + 63) / 64 * 64) : 0;
  m.size = end - s->scratch + (size ? (size + 64) / 4 : 0);
  return m;
}

/* The numbers that a step's scratch has room for. */
ptrdiff_t scratch_size(const step_work *s) { return scratch_in(s).size; }

/* Norm and turn the queries of a token and a head of keys, and write its key and its value where the cache keeps
   them. */
static void turn_and_keep(const step_work *s, const scratch_view *m, const layer_weights *l, const layer_cache *held,
                          ptrdiff_t token, ptrdiff_t head) {
  ptrdiff_t row = token / s->tokens, width = s->width, all = s->heads * s->groups, i = 0;
  while (row >= s->cache[i].first + s->cache[i].rows) i++;
  const cache_view *c = s->cache + i;
  const float *cos = s->cos + token * width, *sin = s->sin + token * width;
  float *heads = m->heads + token * m->heads_width;
  ptrdiff_t at = token - c->first * s->tokens;
  ptrdiff_t place = (row - c->first) * c->row_stride + head * c->head_stride + c->columns[at] * width;
  float *queries = heads + head * s->groups * width, *key = heads + (all + head) * width;
  const float *value = heads + (all + s->heads + head) * width;
  if (l->query_norm) norm_rows(queries, l->query_norm, l->head_eps, width, 0, s->groups, queries);
  if (l->key_norm) norm_rows(key, l->key_norm, l->head_eps, width, 0, 1, key);
  for (ptrdiff_t q = 0; q < s->groups; q++) turn(queries + q * width, cos, sin, width, queries + q * width);
  turn(key, cos, sin, width, key);
  for (ptrdiff_t k = 0; k < width; k++) {
    store_one(held[i].keys, place + k, key[k], (int)s->half_cache);
    store_one(held[i].values, place + k, value[k], (int)s->half_cache);
  }
}

/* Compute a thread's share of out [tokens, outer], plus out itself where that is to be added. */
static void multiply_in_step(const step_work *s, const scratch_view *m, const float *x, ptrdiff_t x_stride,
                             const void *packed, const float *bias, float *out, ptrdiff_t inner, ptrdiff_t outer, int adds,
                             int number, int team) {
  const ptrdiff_t tokens = s->rows * s->tokens;
  const int threads = (int)s->threads;
  const float *add = adds ? out : 0;
  if (s->half_pieces) {
    const int count = (int)s->half_pieces;
    halves_work p = {x, x_stride, packed, bias, add, out, outer, tokens, inner, outer, threads, m->pieces, 0, count};
    multiply_halves_share(&p, number, team);
  } else {
    product_work p = {x, x_stride, packed, (int)s->type, bias, add, out, outer, tokens, inner, outer, threads, m->pieces};
    multiply_share(&p, number, team);
  }
}

static void step_in_thread(void *given) {
  step_work *s = given;
  const int threads = (int)s->threads, number = number_of(threads), team = team_of(threads);
  const ptrdiff_t tokens = s->rows * s->tokens, hidden = s->hidden;
  const scratch_view m = scratch_in(s);
  const ptrdiff_t first_token = share_of(tokens, number, team), end_token = share_of(tokens, number + 1, team);
  for (ptrdiff_t i = 0; i < s->layers; i++) {
    const layer_weights *l = s->layer + i;
    const layer_cache *held = s->held + i * s->caches;
    attention_work a = attention_in(s, &m, l->scale);
    norm_rows(s->states, l->input_norm, l->input_eps, hidden, first_token, end_token, m.normed);
    if (number == 0) s->next = 0;
    wait_for(threads);
    multiply_in_step(s, &m, m.normed, hidden, l->qkv, l->qkv_bias, m.heads, hidden, m.heads_width, 0, number, team);
    wait_for(threads);
    ptrdiff_t heads = tokens * s->heads;
    for (ptrdiff_t at = share_of(heads, number, team); at < share_of(heads, number + 1, team); at++)
      turn_and_keep(s, &m, l, held, at / s->heads, at % s->heads);
    wait_for(threads);
    ptrdiff_t before = 0, task = __atomic_fetch_add(&s->next, 1, __ATOMIC_RELAXED);
    for (ptrdiff_t c = 0; c < s->caches; c++) {
      attention_plan w = work_on(&a, s->cache + c);
      for (; task - before < w.tasks; task = __atomic_fetch_add(&s->next, 1, __ATOMIC_RELAXED))
        attend_task(&a, s->cache + c, held + c, &w, task - before);
      before += w.tasks;
    }
    wait_for(threads);
    ptrdiff_t each = s->tokens * s->heads * s->groups;
    for (ptrdiff_t c = 0; c < s->caches; c++) {
      attention_plan w = work_on(&a, s->cache + c);
      ptrdiff_t all = s->cache[c].rows * each, start = s->cache[c].first * each;
      merge(&a, w.prefix_parts + w.own_parts, start + share_of(all, number, team),
            start + share_of(all, number + 1, team));
    }
    wait_for(threads);
    multiply_in_step(s, &m, m.attended, m.attended_width, l->o, l->o_bias, s->states, m.attended_width, hidden, 1,
                     number, team);
    wait_for(threads);
    norm_rows(s->states, l->post_norm, l->post_eps, hidden, first_token, end_token, m.normed);
    wait_for(threads);
    multiply_in_step(s, &m, m.normed, hidden, l->gate_up, l->gate_up_bias, m.both, hidden, 2 * s->features, 0, number,
                     team);
    wait_for(threads);
    gate_columns(m.both, s->features, tokens, share_of(s->features / LANES, number, team) * LANES,
                 number + 1 == team ? s->features : share_of(s->features / LANES, number + 1, team) * LANES,
                 m.both, 2 * s->features);
    wait_for(threads);
    multiply_in_step(s, &m, m.both, 2 * s->features, l->down, l->down_bias, s->states, s->features, hidden, 1, number,
                     team);
    wait_for(threads);
  }
}

/* Compute all layers of a step. */
void step(step_work *s) { run(step_in_thread, s, (int)s->threads); }
