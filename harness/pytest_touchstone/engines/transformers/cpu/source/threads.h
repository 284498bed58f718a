/* The threads of torch's own pool. A second pool would wait for work on the same cores. */

#pragma once

#include "vectors.h"

typedef void (*parallel_fn)(void (*)(void *), void *, unsigned, unsigned);

static struct {
  parallel_fn parallel;
  int (*number)(void);
  int (*count)(void);
  void (*barrier)(void);
} pool;

void use_threads(parallel_fn parallel, int (*number)(void), int (*count)(void), void (*barrier)(void)) {
  pool.parallel = parallel;
  pool.number = number;
  pool.count = count;
  pool.barrier = barrier;
}

static void run(void (*work)(void *), void *given, int threads) {
  if (threads > 1)
    pool.parallel(work, given, (unsigned)threads, 0);
  else
    work(given);
}

INLINE int number_of(int threads) { return threads > 1 ? pool.number() : 0; }

/* The threads that work together: fewer than were asked for where OpenMP is told so. */
INLINE int team_of(int threads) { return threads > 1 ? pool.count() : 1; }

INLINE void wait_for(int threads) {
  if (threads > 1) pool.barrier();
}

/* The first of a thread's share. */
INLINE ptrdiff_t share_of(ptrdiff_t all, int number, int threads) { return all * number / threads; }
