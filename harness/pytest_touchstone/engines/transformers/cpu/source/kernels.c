/* Products, norms and attention of a decoder, for x86-64 processors with AVX2 and FMA, or AVX-512.

   Compiled at the first start, for the processor at hand (library.py). Most is written in GCC's vector extensions, so
   that one text serves both widths; products by pieces are written for AVX-512, and for the tile unit. Numbers are
   float32 or bfloat16, and what is computed is float32. A stride counts numbers, not bytes. */

#include "passes.h"
#include "steps.h"
