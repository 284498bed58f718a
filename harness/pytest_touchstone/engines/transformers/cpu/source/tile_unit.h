/* Intel's tile unit (AMX), which multiplies bfloat16 numbers and sums in float32, 16 times as fast as vectors. */

#pragma once

#include "pieces.h"

#if LANES == 16 && defined(__AMX_TILE__) && defined(__AMX_BF16__)
#define TILE_UNIT 1
#else
#define TILE_UNIT 0
#endif

/* The compiler does not know that tiles are read from memory. */
#define IN_MEMORY __asm__ volatile("" ::: "memory")

#if TILE_UNIT && !defined(DOT) /* tests have a unit of their own */

#include <sys/syscall.h>
#include <unistd.h>

static int tiles_allowed;

/* Ask the system for the tile unit; false where this process may not use it. */
int use_tiles(void) {
  tiles_allowed = syscall(SYS_arch_prctl, 0x1023 /* ARCH_REQ_XCOMP_PERM */, 18 /* XTILEDATA */) == 0;
  return tiles_allowed;
}

typedef struct {
  uint8_t palette, start, reserved[14];
  uint16_t bytes[16];
  uint8_t rows[16];
} __attribute__((aligned(64))) tile_shapes;

/* What a thread's tiles were before, for whoever set them up. */
INLINE tile_shapes shape_tiles(void) {
  tile_shapes before, all = {.palette = 1};
  for (int i = 0; i < 8; i++) all.bytes[i] = 64, all.rows[i] = TILE_ROWS;
  __asm__ volatile("sttilecfg %0" : "=m"(before));
  __asm__ volatile("ldtilecfg %0" ::"m"(all) : "memory");
  return before;
}

INLINE void restore_tiles(const tile_shapes *before) {
  if (before->palette)
    __asm__ volatile("ldtilecfg %0" ::"m"(*before) : "memory");
  else
    __asm__ volatile("tilerelease" ::: "memory");
}

#define FROM(tile, from) __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile ::"r"(from), "r"((ptrdiff_t)64))
#define TO(tile, to) __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" ::"r"(to), "r"((ptrdiff_t)(4 * PANEL)) : "memory")
#define ZERO(tile) __asm__ volatile("tilezero %%tmm" #tile ::)
#define DOT(sums, rows, columns) __asm__ volatile("tdpbf16ps %%tmm" #columns ", %%tmm" #rows ", %%tmm" #sums ::)

#elif !TILE_UNIT

enum { tiles_allowed = 0 };
int use_tiles(void) { return 0; }

#endif
