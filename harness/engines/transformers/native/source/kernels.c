/* Products, norms and attention of a decoder in float32, for x86-64 processors with AVX2 and FMA, or AVX-512.

   Compiled at the first start, for the processor at hand (library.py). Everything is written in GCC's vector
   extensions, so that one text serves both widths. Numbers are float32; a stride counts numbers, not bytes. */

#include "passes.h"
#include "steps.h"
