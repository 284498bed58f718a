/* Attention of whole texts, under a mask that says which keys a token sees. */

#pragma once

#include "attention.h"
#include "threads.h"

typedef struct {
  const void *queries, *keys, *values, *mask; /* mask: [rows, tokens, keys], added to the scores */
  void *out;                                  /* [rows, tokens, heads, groups, width] */
  ptrdiff_t rows, tokens, heads, groups, width, length; /* length: keys */
  ptrdiff_t query_row, query_head, query_token, key_row, key_head, key_token, value_row, value_head, value_token;
  ptrdiff_t mask_row, mask_token; /* strides */
  float scale;
  int32_t threads;
  ptrdiff_t next;
  int32_t half; /* all are bfloat16 numbers, else float32 */
} pass_work;

#define APART 12 /* keys that no token sees, from which it is worth to leave them out */

typedef struct {
  ptrdiff_t first, end;
} key_run;

/* Find the runs of keys that some of the tokens [first, last] of a mask see; return their number, at most
   length / APART + 1. */
INLINE ptrdiff_t runs_seen(const pass_work *p, const void *mask, ptrdiff_t first, ptrdiff_t last, key_run *runs,
                           const int half) {
  ptrdiff_t count = 0, whole_length = p->length / LANES * LANES;
  float most[p->length];
  for (ptrdiff_t token = first; token <= last; token++) {
    const void *from = number_at(mask, token * p->mask_token, half);
    for (ptrdiff_t k = 0; k < whole_length; k += LANES)
      store(most + k, larger(token > first ? load(most + k) : splat(-3e38f), load_as(from, k, half)));
    for (ptrdiff_t k = whole_length; k < p->length; k++) {
      float number = number_as(from, k, half);
      most[k] = token > first && most[k] > number ? most[k] : number;
    }
  }
  for (ptrdiff_t k = 0; k < p->length; k++) {
    if (most[k] < -1e30f) continue;
    if (!count || k - runs[count - 1].end >= APART) runs[count++].first = k;
    runs[count - 1].end = k + 1;
  }
  return count;
}

/* Attend for up to PANEL queries of each of a row's heads. */
INLINE void attend_pass(const pass_work *p, ptrdiff_t row, ptrdiff_t panel, const int half) {
  ptrdiff_t width = p->width, begin = panel * PANEL, total = p->tokens * p->groups;
  ptrdiff_t count = total - begin < PANEL ? total - begin : PANEL;
  const void *mask = number_at(p->mask, row * p->mask_row, half);
  key_run runs[p->length / APART + 1];
  ptrdiff_t some = runs_seen(p, mask, begin / p->groups, (begin + count - 1) / p->groups, runs, half);
  float added[p->length * PANEL], packed[width * PANEL], sums[PANEL * width];
  for (ptrdiff_t q = 0; q < PANEL; q++) {
    const void *from = number_at(mask, (begin + (q < count ? q : 0)) / p->groups * p->mask_token, half);
    for (ptrdiff_t i = 0; i < some; i++)
      for (ptrdiff_t k = runs[i].first; k < runs[i].end; k++) added[k * PANEL + q] = number_as(from, k, half);
  }
  for (ptrdiff_t head = 0; head < p->heads; head++) {
    for (ptrdiff_t q = 0; q < PANEL; q++) {
      ptrdiff_t at = begin + (q < count ? q : 0);
      ptrdiff_t token = row * p->query_row + at / p->groups * p->query_token;
      const void *from = number_at(p->queries, token + (head * p->groups + at % p->groups) * p->query_head, half);
      for (ptrdiff_t k = 0; k < width; k++) packed[k * PANEL + q] = number_as(from, k, half) * p->scale;
    }
    panel_result f = nothing_found(sums, width);
    for (ptrdiff_t i = 0; i < some; i++) {
      ptrdiff_t k = runs[i].first;
      head_view h = {number_at(p->keys, row * p->key_row + head * p->key_head + k * p->key_token, half),
                     number_at(p->values, row * p->value_row + head * p->value_head + k * p->value_token, half),
                     p->key_token, p->value_token, half};
      attend_panel(packed, count, width, &h, runs[i].end - k, added + k * PANEL, &f);
    }
    for (ptrdiff_t q = 0; q < count; q++) {
      ptrdiff_t at = begin + q;
      float all = f.all[q / LANES][q % LANES], factor = all == 0 ? 0 : 1 / all; /* 0: a token that sees nothing */
      ptrdiff_t place = (((row * p->tokens + at / p->groups) * p->heads + head) * p->groups + at % p->groups) * width;
      for (ptrdiff_t k = 0; k < width; k++) store_one(p->out, place + k, sums[q * width + k] * factor, half);
    }
  }
}

static void pass_in_thread(void *given) {
  pass_work *p = given;
  ptrdiff_t panels = (p->tokens * p->groups + PANEL - 1) / PANEL, task;
  while ((task = __atomic_fetch_add(&p->next, 1, __ATOMIC_RELAXED)) < p->rows * panels)
    if (p->half)
      attend_pass(p, task / panels, task % panels, 1);
    else
      attend_pass(p, task / panels, task % panels, 0);
}

/* Attend for all tokens of a pass. */
void attend(pass_work *p) { run(pass_in_thread, p, p->threads); }
