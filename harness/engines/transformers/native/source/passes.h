/* Attention of whole texts, under a mask that says which keys a token sees. */

#pragma once

#include "attention.h"
#include "threads.h"

typedef struct {
  const float *queries, *keys, *values, *mask; /* mask: [rows, tokens, keys], added to the scores */
  float *out;                                  /* [rows, tokens, heads, groups, width] */
  ptrdiff_t rows, tokens, heads, groups, width, length; /* length: keys */
  ptrdiff_t query_row, query_head, query_token, key_row, key_head, key_token, value_row, value_head, value_token;
  ptrdiff_t mask_row, mask_token; /* strides */
  float scale;
  int32_t threads;
  ptrdiff_t next;
} pass_work;

/* Attend for up to PANEL queries of each of a row's heads. */
static void attend_pass(const pass_work *p, ptrdiff_t row, ptrdiff_t panel) {
  ptrdiff_t width = p->width, begin = panel * PANEL, total = p->tokens * p->groups, end = 0;
  ptrdiff_t count = total - begin < PANEL ? total - begin : PANEL;
  const float *mask = p->mask + row * p->mask_row;
  for (ptrdiff_t token = begin / p->groups; token <= (begin + count - 1) / p->groups; token++) {
    ptrdiff_t last = p->length;
    while (last > end && mask[token * p->mask_token + last - 1] < -1e30f) last--;
    end = last;
  }
  float added[(end ? end : 1) * PANEL], packed[width * PANEL], sums[PANEL * width];
  for (ptrdiff_t q = 0; q < PANEL; q++) {
    const float *from = mask + (begin + (q < count ? q : 0)) / p->groups * p->mask_token;
    for (ptrdiff_t k = 0; k < end; k++) added[k * PANEL + q] = from[k];
  }
  for (ptrdiff_t head = 0; head < p->heads; head++) {
    for (ptrdiff_t q = 0; q < PANEL; q++) {
      ptrdiff_t at = begin + (q < count ? q : 0);
      const float *from = p->queries + row * p->query_row + at / p->groups * p->query_token +
                          (head * p->groups + at % p->groups) * p->query_head;
      for (ptrdiff_t k = 0; k < width; k++) packed[k * PANEL + q] = from[k] * p->scale;
    }
    head_view h = {p->keys + row * p->key_row + head * p->key_head, p->values + row * p->value_row + head * p->value_head,
                 p->key_token, p->value_token, 0};
    panel_result f = attend_panel(packed, count, width, &h, end, added, sums);
    for (ptrdiff_t q = 0; q < count; q++) {
      ptrdiff_t at = begin + q;
      float all = f.all[q / LANES][q % LANES], factor = all == 0 ? 0 : 1 / all; /* 0: a token that sees nothing */
      float *out = p->out + (((row * p->tokens + at / p->groups) * p->heads + head) * p->groups + at % p->groups) * width;
      for (ptrdiff_t k = 0; k < width; k++) out[k] = sums[q * width + k] * factor;
    }
  }
}

static void pass_in_thread(void *given) {
  pass_work *p = given;
  ptrdiff_t panels = (p->tokens * p->groups + PANEL - 1) / PANEL, task;
  while ((task = __atomic_fetch_add(&p->next, 1, __ATOMIC_RELAXED)) < p->rows * panels)
    attend_pass(p, task / panels, task % panels);
}

/* Attend for all tokens of a pass. */
void attend(pass_work *p) { run(pass_in_thread, p, p->threads); }
