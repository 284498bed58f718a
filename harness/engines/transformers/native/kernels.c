/* Products, norms and attention of a decoder in float32, for x86-64 processors with AVX2 and FMA, or AVX-512.

   Compiled at the first start, for the processor at hand (library.py). Everything is written in GCC's vector
   extensions, so that one text serves both widths. Numbers are float32; a stride counts numbers, not bytes. */

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__AVX512F__)
#define LANES 16
#define MOST_ROWS 12 /* rows of a tile: with two vectors of each, 24 of 32 registers are sums */
#elif defined(__AVX2__) && defined(__FMA__)
#define LANES 8
#define MOST_ROWS 6 /* 12 of 16 registers */
#else
#error "neither AVX-512 nor AVX2 with FMA"
#endif

#define PANEL (2 * LANES)            /* columns of a tile */
#define TILES_AT_ONCE 16             /* tiles that meet a panel while it is in a core's cache */
#define AHEAD 64                     /* lines of a panel that are fetched early where few rows meet it */
#define KEYS_AT_ONCE 192             /* keys whose scores are there at once */
#define SHARE_OF_KEYS 128            /* keys from which it is worth to share them among threads */
#define KEYS_AHEAD 16                /* own keys that are fetched early */
#define TASKS_PER_THREAD 4
#define ALONE 8192                   /* numbers for which one thread is enough */
#define QUERIES_AT_ONCE 4            /* queries that share a key as it is read */

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

typedef float lanes __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t whole __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

/* Threads: those of torch's own pool. A second pool would wait for work on the same cores. */

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

int panel_width(void) { return PANEL; }

/* Vectors */

INLINE lanes splat(float number) { return number - (lanes){0}; }
INLINE lanes load(const float *from) { return *(const lanes *)from; }
INLINE void store(float *to, lanes numbers) { *(lanes *)to = numbers; }
/* Of two numbers of which one is NaN, the second. */
#if LANES == 16
INLINE lanes larger(lanes a, lanes b) { return (lanes)_mm512_max_ps((__m512)a, (__m512)b); }
INLINE lanes smaller(lanes a, lanes b) { return (lanes)_mm512_min_ps((__m512)a, (__m512)b); }
#else
INLINE lanes larger(lanes a, lanes b) { return (lanes)_mm256_max_ps((__m256)a, (__m256)b); }
INLINE lanes smaller(lanes a, lanes b) { return (lanes)_mm256_min_ps((__m256)a, (__m256)b); }
#endif

INLINE float sum_of(lanes numbers) {
#if LANES == 16
  numbers += __builtin_shuffle(numbers, (whole){8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7});
  numbers += __builtin_shuffle(numbers, (whole){4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11});
  numbers += __builtin_shuffle(numbers, (whole){2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13});
  numbers += __builtin_shuffle(numbers, (whole){1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14});
#else
  numbers += __builtin_shuffle(numbers, (whole){4, 5, 6, 7, 0, 1, 2, 3});
  numbers += __builtin_shuffle(numbers, (whole){2, 3, 0, 1, 6, 7, 4, 5});
  numbers += __builtin_shuffle(numbers, (whole){1, 0, 3, 2, 5, 4, 7, 6});
#endif
  return numbers[0];
}

/* e to the power of each number, to 2 units in the last place; 0 and infinity beyond float32, NaN for NaN. By
   the Taylor series of what remains after the next power of two. */
INLINE lanes exp_of(lanes x) {
  lanes near = smaller(splat(89.0f), larger(splat(-104.0f), x));
  lanes shifted = near * 1.44269504f + 12582912.0f; /* 1.5 times 2 to the 23rd: rounds to a whole number */
  lanes n = shifted - 12582912.0f;
  lanes r = near - n * 0.693359375f + n * 2.12194440e-4f;
  lanes p = splat(1.0f / 720);
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
#if LANES == 16
  return (lanes)_mm512_scalef_ps((__m512)p, (__m512)n);
#else
  /* In two steps, so that either half of the power is a number that float32 has. */
  whole power = __builtin_convertvector(n, whole), half = power >> 1;
  return p * (lanes)((half + 127) << 23) * (lanes)((power - half + 127) << 23);
#endif
}

INLINE float exp_one(float x) { return exp_of(splat(x))[0]; }

/* Have so many numbers on the way to the core's second cache. */
INLINE void fetch(const float *from, ptrdiff_t count) {
  for (ptrdiff_t i = 0; i < count; i += 16) __builtin_prefetch(from + i, 0, 2);
}

/* Tiles: sums over k of x[row, k] and panel[k, column], for a few rows and PANEL columns */

INLINE void tile(const int rows, const float *x, ptrdiff_t row_stride, ptrdiff_t k_stride, const float *panel,
                 ptrdiff_t panel_stride, ptrdiff_t inner, const char *ahead, const int lines, ptrdiff_t step,
                 lanes sums[][2]) {
  const float *at[4]; /* every third row; the others are reached by one stride or two */
  UNROLL
  for (int i = 0; i < (rows + 2) / 3; i++) at[i] = x + 3 * i * row_stride;
  for (ptrdiff_t k = 0; k < inner; k++) {
    lanes a = load(panel), b = load(panel + LANES);
    if (lines > 0) __builtin_prefetch(ahead, 0, 2);
    if (lines > 1) __builtin_prefetch(ahead + 64, 0, 2);
    ahead += step;
    panel += panel_stride;
    UNROLL
    for (int r = 0; r < rows; r++) {
      lanes number = splat(at[r / 3][r % 3 * row_stride]);
      sums[r][0] += number * a;
      sums[r][1] += number * b;
    }
    UNROLL
    for (int i = 0; i < (rows + 2) / 3; i++) at[i] += k_stride;
  }
}

/* Products with packed weights */

typedef struct {
  const float *x;
  ptrdiff_t x_stride;
  const float *packed; /* [panels, inner, PANEL] */
  const float *bias;   /* [outer] or NULL */
  const float *add;    /* [rows, outer], as out is laid out, or NULL */
  float *out;
  ptrdiff_t out_stride, rows, inner, outer;
  int threads;
} product_of;

typedef struct {
  const float *x, *panel, *bias, *add;
  float *out;
  ptrdiff_t x_stride, inner, out_stride;
  const char *ahead;
  ptrdiff_t step;
} tile_of;

#define PRODUCT_OF(rows)                                                                                \
  static void product_of_##rows(const tile_of *t) {                                                     \
    lanes sums[rows][2];                                                                                \
    lanes first = t->bias ? load(t->bias) : splat(0), second = t->bias ? load(t->bias + LANES) : first; \
    UNROLL                                                                                              \
    for (int r = 0; r < rows; r++) sums[r][0] = first, sums[r][1] = second;                             \
    if (t->step > 64)                                                                                   \
      tile(rows, t->x, t->x_stride, 1, t->panel, PANEL, t->inner, t->ahead, 2, 4 * PANEL, sums);        \
    else                                                                                                \
      tile(rows, t->x, t->x_stride, 1, t->panel, PANEL, t->inner, t->ahead, 1, t->step, sums);          \
    float *out = t->out;                                                                                \
    const float *add = t->add;                                                                          \
    if (add) {                                                                                          \
      UNROLL                                                                                            \
      for (int r = 0; r < rows; r++) {                                                                  \
        sums[r][0] += load(add + r * t->out_stride);                                                    \
        sums[r][1] += load(add + r * t->out_stride + LANES);                                            \
      }                                                                                                 \
    }                                                                                                   \
    UNROLL                                                                                              \
    for (int r = 0; r < rows; r++) {                                                                    \
      store(out + r * t->out_stride, sums[r][0]);                                                       \
      store(out + r * t->out_stride + LANES, sums[r][1]);                                               \
    }                                                                                                   \
  }

#define SCORES_OF(rows)                                                                                          \
  static void scores_of_##rows(const float *keys, ptrdiff_t width, const float *panel, float *out) {             \
    lanes sums[rows][2];                                                                                         \
    UNROLL                                                                                                       \
    for (int r = 0; r < rows; r++) sums[r][0] = sums[r][1] = splat(0);                                           \
    tile(rows, keys, width, 1, panel, PANEL, width, (const char *)(keys + 2 * rows * width), 1, 4 * rows, sums); \
    UNROLL                                                                                                       \
    for (int r = 0; r < rows; r++) store(out + r * PANEL, sums[r][0]), store(out + r * PANEL + LANES, sums[r][1]); \
  }                                                                                                              \
  static void values_of_##rows(const float *weights, ptrdiff_t width, const float *values, ptrdiff_t keys,       \
                               float *out) {                                                                     \
    lanes sums[rows][2];                                                                                         \
    UNROLL                                                                                                       \
    for (int r = 0; r < rows; r++) sums[r][0] = load(out + r * width), sums[r][1] = load(out + r * width + LANES); \
    tile(rows, weights, 1, PANEL, values, width, keys, 0, 0, 0, sums);                                           \
    UNROLL                                                                                                       \
    for (int r = 0; r < rows; r++) store(out + r * width, sums[r][0]), store(out + r * width + LANES, sums[r][1]); \
  }

#if MOST_ROWS == 12
#define EACH(make) \
  make(1) make(2) make(3) make(4) make(5) make(6) make(7) make(8) make(9) make(10) make(11) make(12)
#define ALL(name) \
  {0, name##_1, name##_2, name##_3, name##_4, name##_5, name##_6, name##_7, name##_8, name##_9, name##_10, name##_11, \
   name##_12}
#else
#define EACH(make) make(1) make(2) make(3) make(4) make(5) make(6)
#define ALL(name) {0, name##_1, name##_2, name##_3, name##_4, name##_5, name##_6}
#endif

EACH(PRODUCT_OF)
EACH(SCORES_OF)

static void (*const products_by_rows[])(const tile_of *) = ALL(product_of);
static void (*const scores_by_rows[])(const float *, ptrdiff_t, const float *, float *) = ALL(scores_of);
static void (*const values_by_rows[])(const float *, ptrdiff_t, const float *, ptrdiff_t, float *) = ALL(values_of);

/* Multiply the rows of tiles [first, first + tiles) of so many. */
static void multiply_panel(const product_of *p, ptrdiff_t panel, ptrdiff_t first, ptrdiff_t tiles, ptrdiff_t all) {
  ptrdiff_t column = panel * PANEL;
  int edge = p->outer - column < PANEL;
  float wide[MOST_ROWS * PANEL];
  tile_of t = {.panel = p->packed + panel * p->inner * PANEL, .inner = p->inner, .x_stride = p->x_stride};
  t.bias = p->bias && !edge ? p->bias + column : 0;
  /* What this panel's tiles read is in the cache after the first of them; meanwhile the next panel is fetched. */
  t.step = tiles == 1 ? 4 * PANEL : 4 * PANEL / tiles < 64 ? 4 * PANEL / tiles : 64;
  for (ptrdiff_t i = 0; i < tiles; i++) {
    ptrdiff_t row = p->rows * (first + i) / all, rows = p->rows * (first + i + 1) / all - row;
    float *out = p->out + row * p->out_stride + column;
    const float *add = p->add ? p->add + row * p->out_stride + column : 0;
    t.x = p->x + row * p->x_stride;
    t.out = edge ? wide : out, t.out_stride = edge ? PANEL : p->out_stride;
    t.add = edge ? 0 : add;
    t.ahead = (const char *)t.panel + (tiles == 1 ? AHEAD * 4 * PANEL : 4 * PANEL * p->inner + i * t.step * p->inner);
    products_by_rows[rows](&t);
    if (edge)
      for (ptrdiff_t r = 0; r < rows; r++)
        for (ptrdiff_t c = 0; c < p->outer - column; c++)
          out[r * p->out_stride + c] = wide[r * PANEL + c] + (p->bias ? p->bias[column + c] : 0) +
                                       (add ? add[r * p->out_stride + c] : 0);
  }
}

static void multiply_share(const product_of *p, int number, int team) {
  ptrdiff_t panels = (p->outer + PANEL - 1) / PANEL, tiles = (p->rows + MOST_ROWS - 1) / MOST_ROWS;
  ptrdiff_t blocks = (tiles + TILES_AT_ONCE - 1) / TILES_AT_ONCE;
  ptrdiff_t first = blocks * panels * number / team, end = blocks * panels * (number + 1) / team;
  for (ptrdiff_t item = first; item < end; item++) {
    ptrdiff_t block = item / panels, begin = tiles * block / blocks;
    multiply_panel(p, item % panels, begin, tiles * (block + 1) / blocks - begin, tiles);
  }
}

static void multiply_in_thread(void *given) {
  const product_of *p = given;
  multiply_share(p, number_of(p->threads), team_of(p->threads));
}

/* out [rows, outer] = x [rows, inner] times the packed weights, plus bias, plus add; add may be out, or NULL */
void multiply(const float *x, const float *packed, const float *bias, const float *add, float *out, ptrdiff_t rows,
              ptrdiff_t inner, ptrdiff_t outer, int threads) {
  product_of p = {x, inner, packed, bias, add, out, outer, rows, inner, outer, threads};
  run(multiply_in_thread, &p, threads);
}

/* Norms and gates */

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

INLINE ptrdiff_t share_of(ptrdiff_t all, int number, int threads) { return all * number / threads; }

typedef struct {
  const float *x, *weight, *cos, *sin;
  float eps, *out;
  ptrdiff_t width, rows, stride, heads, turns;
  int threads;
} rows_of;

static void normalize_in_thread(void *given) {
  const rows_of *r = given;
  int number = number_of(r->threads), team = team_of(r->threads);
  norm_rows(r->x, r->weight, r->eps, r->width, share_of(r->rows, number, team),
            share_of(r->rows, number + 1, team), r->out);
}

static void gate_in_thread(void *given) {
  const rows_of *r = given;
  int number = number_of(r->threads), team = team_of(r->threads);
  ptrdiff_t first = share_of(r->rows, number, team), end = share_of(r->rows, number + 1, team);
  gate_columns(r->x + first * 2 * r->width, r->width, end - first, 0, r->width, r->out + first * r->width, r->width);
}

static void turn_in_thread(void *given) {
  const rows_of *r = given;
  int number = number_of(r->threads), team = team_of(r->threads);
  for (ptrdiff_t row = share_of(r->rows, number, team); row < share_of(r->rows, number + 1, team); row++) {
    ptrdiff_t at = row % r->turns * r->width;
    for (ptrdiff_t head = 0; head < r->heads; head++) {
      float *x = r->out + row * r->stride + head * r->width;
      turn(x, r->cos + at, r->sin + at, r->width, x);
    }
  }
}

static void run_rows(void (*work)(void *), rows_of *r, int threads) {
  r->threads = r->rows * r->width < ALONE ? 1 : threads;
  run(work, r, r->threads);
}

/* out [rows, width] = x [rows, width] by their root mean square, times weight [width] */
void normalize(const float *x, const float *weight, float eps, ptrdiff_t width, ptrdiff_t rows, float *out, int threads) {
  rows_of r = {.x = x, .weight = weight, .eps = eps, .width = width, .rows = rows, .out = out};
  run_rows(normalize_in_thread, &r, threads);
}

/* out [rows, width] = silu(gates) times ups, of both [rows, gates and ups] */
void gate(const float *both, ptrdiff_t width, ptrdiff_t rows, float *out, int threads) {
  rows_of r = {.x = both, .width = width, .rows = rows, .out = out};
  run_rows(gate_in_thread, &r, threads);
}

/* Turn the first heads of tokens [rows, stride] where they lie; cos and sin [turns, width] are those of the first
   tokens, of as many after those, and so on. */
void turn_heads(float *x, ptrdiff_t stride, ptrdiff_t heads, ptrdiff_t width, ptrdiff_t rows, const float *cos,
                const float *sin, ptrdiff_t turns, int threads) {
  rows_of r = {.out = x, .stride = stride, .heads = heads, .width = width, .rows = rows, .cos = cos, .sin = sin,
               .turns = turns};
  run_rows(turn_in_thread, &r, threads);
}

/* Attention of a few tokens per row

   Queries that share a key's head are laid side by side. Those of all rows meet the prefix's keys in tiles; those of
   a row meet its own. Each part gives values, and for each query the largest score and the sum of the exponentials
   from there; the parts are merged at the end. */

typedef struct {
  float *keys, *values;                         /* [rows, heads, columns, width] */
  const float *prefix_keys, *prefix_values;     /* [heads, past, width], or NULL */
  const float *mask;                            /* [rows, tokens, until]: added to own scores */
} layer_cache;

typedef struct {
  ptrdiff_t rows, first;              /* the rows of this cache, and the first one in the pass */
  ptrdiff_t until, past;              /* columns that may be seen, tokens of the prefix */
  ptrdiff_t row_stride, head_stride;  /* of own keys and values */
  ptrdiff_t key_stride, value_stride; /* of heads of the prefix's keys, and of its values */
  ptrdiff_t mask_stride;              /* of rows x tokens */
  const int64_t *columns;             /* [rows, tokens]: where new keys go */
} cache_of;

typedef struct {
  ptrdiff_t rows, tokens, heads, groups, width; /* heads: of keys; groups: queries per key */
  float scale;
  const float *queries; /* [rows, tokens, heads, groups, width], with rows x tokens apart by stride */
  ptrdiff_t query_stride;
  float *parts; /* [parts, queries, width + 2] */
  float *out;   /* [rows, tokens, heads, groups, width] */
  int threads;
} attention_of;

INLINE ptrdiff_t part_size(const attention_of *a) { return a->rows * a->tokens * a->heads * a->groups * (a->width + 2); }

/* A query's number among all: its values are at parts + number * (width + 2). */
INLINE ptrdiff_t query_number(const attention_of *a, ptrdiff_t row, ptrdiff_t head, ptrdiff_t at) {
  ptrdiff_t token = at / a->groups;
  return ((row * a->tokens + token) * a->heads + head) * a->groups + at % a->groups;
}

INLINE const float *query_at(const attention_of *a, ptrdiff_t row, ptrdiff_t head, ptrdiff_t at) {
  ptrdiff_t token = at / a->groups;
  return a->queries + (row * a->tokens + token) * a->query_stride + (head * a->groups + at % a->groups) * a->width;
}

/* Attend for up to PANEL queries of a head to keys [first, end) of the prefix. */
static void attend_prefix(const attention_of *a, const cache_of *c, const layer_cache *l, ptrdiff_t head,
                          ptrdiff_t panel, ptrdiff_t first, ptrdiff_t end, float *parts) {
  ptrdiff_t width = a->width, each = a->tokens * a->groups, total = c->rows * each;
  ptrdiff_t begin = panel * PANEL, count = total - begin < PANEL ? total - begin : PANEL;
  float packed[width * PANEL], sums[PANEL * width];
  float scores[KEYS_AT_ONCE * PANEL];
  lanes most[2] = {splat(-3e38f), splat(-3e38f)}, all[2] = {splat(0), splat(0)};
  for (ptrdiff_t q = 0; q < PANEL; q++) {
    const float *from = q < count ? query_at(a, c->first + (begin + q) / each, head, (begin + q) % each) : 0;
    for (ptrdiff_t k = 0; k < width; k++) packed[k * PANEL + q] = from ? from[k] * a->scale : 0;
  }
  for (ptrdiff_t i = 0; i < PANEL * width; i++) sums[i] = 0;
  const float *keys = l->prefix_keys + head * c->key_stride, *values = l->prefix_values + head * c->value_stride;
  for (; first < end; first += KEYS_AT_ONCE) {
    ptrdiff_t some = end - first < KEYS_AT_ONCE ? end - first : KEYS_AT_ONCE;
    lanes before[2] = {most[0], most[1]};
    for (ptrdiff_t k = 0; k < some; k += MOST_ROWS) {
      fetch(values + (first + k) * width, MOST_ROWS * width);
      scores_by_rows[some - k < MOST_ROWS ? some - k : MOST_ROWS](keys + (first + k) * width, width, packed,
                                                                  scores + k * PANEL);
    }
    for (ptrdiff_t k = 0; k < some; k++)
      for (int v = 0; v < 2; v++) most[v] = larger(most[v], load(scores + k * PANEL + v * LANES));
    for (int v = 0; v < 2; v++) {
      lanes factor = exp_of(before[v] - most[v]), sum = splat(0);
      for (ptrdiff_t k = 0; k < some; k++) {
        lanes weight = exp_of(load(scores + k * PANEL + v * LANES) - most[v]);
        store(scores + k * PANEL + v * LANES, weight);
        sum += weight;
      }
      all[v] = all[v] * factor + sum;
      for (int q = 0; q < LANES; q++)
        for (ptrdiff_t k = 0; k < width; k++) sums[(v * LANES + q) * width + k] *= factor[q];
    }
    for (ptrdiff_t q = 0; q < count; q += MOST_ROWS) {
      ptrdiff_t rows = count - q < MOST_ROWS ? count - q : MOST_ROWS, column = 0;
      for (; column + PANEL <= width; column += PANEL)
        values_by_rows[rows](scores + q, width, values + first * width + column, some, sums + q * width + column);
      for (; column < width; column++)
        for (ptrdiff_t r = q; r < q + rows; r++)
          for (ptrdiff_t k = 0; k < some; k++)
            sums[r * width + column] += scores[k * PANEL + r] * values[(first + k) * width + column];
    }
  }
  for (ptrdiff_t q = 0; q < count; q++) {
    ptrdiff_t number = query_number(a, c->first + (begin + q) / each, head, (begin + q) % each);
    float *to = parts + number * (width + 2);
    for (ptrdiff_t k = 0; k < width; k++) to[k] = sums[q * width + k];
    to[width] = most[q / LANES][q % LANES], to[width + 1] = all[q / LANES][q % LANES];
  }
}

/* Attend for a few queries of a row and a head to own keys [first, end). */
static void attend_own(const attention_of *a, const cache_of *c, const layer_cache *l, ptrdiff_t row, ptrdiff_t head,
                       ptrdiff_t first, ptrdiff_t end, float *parts) {
  ptrdiff_t width = a->width, each = a->tokens * a->groups, whole_width = width / LANES * LANES;
  const float *keys = l->keys + row * c->row_stride + head * c->head_stride;
  const float *values = l->values + row * c->row_stride + head * c->head_stride;
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
        const float *key = keys + (begin + k) * width;
        fetch(key + KEYS_AHEAD * width, width);
        fetch(values + (begin + k) * width, width);
        lanes found[QUERIES_AT_ONCE];
        UNROLL
        for (int q = 0; q < QUERIES_AT_ONCE; q++) found[q] = splat(0);
        for (ptrdiff_t i = 0; i < whole_width; i += LANES) {
          lanes numbers = load(key + i);
          UNROLL
          for (int q = 0; q < QUERIES_AT_ONCE; q++) found[q] += numbers * load(queries[q] + i);
        }
        UNROLL
        for (int q = 0; q < QUERIES_AT_ONCE; q++) {
          float score = sum_of(found[q]);
          for (ptrdiff_t i = whole_width; i < width; i++) score += key[i] * queries[q][i];
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
      const float *from = values + begin * width;
      ptrdiff_t i = 0;
      for (; i + PANEL <= width; i += PANEL) {
        lanes found[QUERIES_AT_ONCE][2];
        UNROLL
        for (int q = 0; q < QUERIES_AT_ONCE; q++) found[q][0] = load(to[q] + i), found[q][1] = load(to[q] + i + LANES);
        for (ptrdiff_t k = 0; k < some; k++) {
          lanes one = load(from + k * width + i), two = load(from + k * width + i + LANES);
          UNROLL
          for (int q = 0; q < QUERIES_AT_ONCE; q++)
            found[q][0] += scores[q][k] * one, found[q][1] += scores[q][k] * two;
        }
        for (ptrdiff_t q = 0; q < count; q++) store(to[q] + i, found[q][0]), store(to[q] + i + LANES, found[q][1]);
      }
      for (; i < width; i++)
        for (ptrdiff_t q = 0; q < count; q++)
          for (ptrdiff_t k = 0; k < some; k++) to[q][i] += scores[q][k] * from[k * width + i];
    }
    for (ptrdiff_t q = 0; q < count; q++) to[q][width] = most[q], to[q][width + 1] = all[q];
  }
}

/* Write what the parts of queries [first, end) make together. */
static void merge(const attention_of *a, ptrdiff_t count, ptrdiff_t first, ptrdiff_t end) {
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
} work_of;

INLINE ptrdiff_t shares(ptrdiff_t tokens, ptrdiff_t tasks, int threads) {
  ptrdiff_t most = (tokens + SHARE_OF_KEYS - 1) / SHARE_OF_KEYS, wanted = (TASKS_PER_THREAD * threads + tasks - 1) / tasks;
  return most < wanted ? most : wanted;
}

static work_of work_on(const attention_of *a, const cache_of *c) {
  work_of w;
  w.panels = (c->rows * a->tokens * a->groups + PANEL - 1) / PANEL;
  w.prefix_parts = c->past ? shares(c->past, a->heads * w.panels, a->threads) : 0;
  w.own_parts = shares(c->until, a->heads * c->rows, a->threads);
  w.prefix_tasks = a->heads * w.panels * w.prefix_parts;
  w.tasks = w.prefix_tasks + a->heads * c->rows * w.own_parts;
  return w;
}

/* The parts that a pass can need at most. */
static ptrdiff_t most_parts(const attention_of *a, const cache_of *caches, ptrdiff_t count) {
  ptrdiff_t most = 0;
  for (ptrdiff_t i = 0; i < count; i++) {
    work_of w = work_on(a, caches + i);
    if (w.prefix_parts + w.own_parts > most) most = w.prefix_parts + w.own_parts;
  }
  return most;
}

static void attend_task(const attention_of *a, const cache_of *c, const layer_cache *l, const work_of *w, ptrdiff_t task) {
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

/* A step: a few tokens for each row through all layers of Llama's form */

typedef struct {
  const float *input_norm, *post_norm;
  const float *qkv, *qkv_bias, *o, *o_bias, *gate_up, *gate_up_bias, *down, *down_bias; /* packed; biases or NULL */
  float input_eps, post_eps, scale;
} layer_of;

typedef struct {
  ptrdiff_t layers, caches, rows, tokens, hidden, features, heads, groups, width;
  const layer_of *layer;
  const cache_of *cache;
  const layer_cache *held; /* [layers, caches] */
  const float *cos, *sin;  /* [rows, tokens, width] */
  float *states;           /* [rows, tokens, hidden]: embedded tokens, then what the last layer gives */
  float *scratch;
  ptrdiff_t threads;
  ptrdiff_t next; /* the next task of attention */
} step_of;

typedef struct {
  float *normed, *heads, *attended, *both, *parts;
  ptrdiff_t heads_width, attended_width, size;
} scratch_of;

static attention_of attention_in(const step_of *s, const scratch_of *m, float scale) {
  return (attention_of){s->rows, s->tokens, s->heads, s->groups, s->width, scale, m->heads, m->heads_width, m->parts,
                        m->attended, (int)s->threads};
}

static scratch_of scratch_in(const step_of *s) {
  ptrdiff_t tokens = s->rows * s->tokens;
  scratch_of m = {.heads_width = s->heads * (s->groups + 2) * s->width, .attended_width = s->heads * s->groups * s->width};
  attention_of a = attention_in(s, &m, 1);
  m.normed = s->scratch;
  m.heads = m.normed + tokens * s->hidden;
  m.attended = m.heads + tokens * m.heads_width;
  m.both = m.attended + tokens * m.attended_width;
  m.parts = m.both + tokens * 2 * s->features;
  m.size = tokens * (s->hidden + m.heads_width + m.attended_width + 2 * s->features) +
           most_parts(&a, s->cache, s->caches) * part_size(&a);
  return m;
}

/* The numbers that a step's scratch has room for. */
ptrdiff_t scratch_size(const step_of *s) { return scratch_in(s).size; }

/* Turn the queries of a token and a head of keys, and write its key and its value where the cache keeps them. */
static void turn_and_keep(const step_of *s, const scratch_of *m, const layer_cache *held, ptrdiff_t token,
                          ptrdiff_t head) {
  ptrdiff_t row = token / s->tokens, width = s->width, all = s->heads * s->groups, i = 0;
  while (row >= s->cache[i].first + s->cache[i].rows) i++;
  const cache_of *c = s->cache + i;
  const float *cos = s->cos + token * width, *sin = s->sin + token * width;
  float *heads = m->heads + token * m->heads_width;
  ptrdiff_t at = token - c->first * s->tokens;
  ptrdiff_t place = (row - c->first) * c->row_stride + head * c->head_stride + c->columns[at] * width;
  for (ptrdiff_t q = head * s->groups; q < (head + 1) * s->groups; q++)
    turn(heads + q * width, cos, sin, width, heads + q * width);
  turn(heads + (all + head) * width, cos, sin, width, held[i].keys + place);
  const float *value = heads + (all + s->heads + head) * width;
  for (ptrdiff_t k = 0; k < width; k++) held[i].values[place + k] = value[k];
}

static void step_in_thread(void *given) {
  step_of *s = given;
  const int threads = (int)s->threads, number = number_of(threads), team = team_of(threads);
  const ptrdiff_t tokens = s->rows * s->tokens, hidden = s->hidden;
  const scratch_of m = scratch_in(s);
  const ptrdiff_t first_token = share_of(tokens, number, team), end_token = share_of(tokens, number + 1, team);
  for (ptrdiff_t i = 0; i < s->layers; i++) {
    const layer_of *l = s->layer + i;
    const layer_cache *held = s->held + i * s->caches;
    attention_of a = attention_in(s, &m, l->scale);
    norm_rows(s->states, l->input_norm, l->input_eps, hidden, first_token, end_token, m.normed);
    if (number == 0) s->next = 0;
    wait_for(threads);
    product_of qkv = {m.normed, hidden, l->qkv, l->qkv_bias, 0, m.heads, m.heads_width, tokens, hidden, m.heads_width,
                      threads};
    multiply_share(&qkv, number, team);
    wait_for(threads);
    ptrdiff_t heads = tokens * s->heads;
    for (ptrdiff_t at = share_of(heads, number, team); at < share_of(heads, number + 1, team); at++)
      turn_and_keep(s, &m, held, at / s->heads, at % s->heads);
    wait_for(threads);
    ptrdiff_t before = 0, task = __atomic_fetch_add(&s->next, 1, __ATOMIC_RELAXED);
    for (ptrdiff_t c = 0; c < s->caches; c++) {
      work_of w = work_on(&a, s->cache + c);
      for (; task - before < w.tasks; task = __atomic_fetch_add(&s->next, 1, __ATOMIC_RELAXED))
        attend_task(&a, s->cache + c, held + c, &w, task - before);
      before += w.tasks;
    }
    wait_for(threads);
    ptrdiff_t each = s->tokens * s->heads * s->groups;
    for (ptrdiff_t c = 0; c < s->caches; c++) {
      work_of w = work_on(&a, s->cache + c);
      ptrdiff_t all = s->cache[c].rows * each, start = s->cache[c].first * each;
      merge(&a, w.prefix_parts + w.own_parts, start + share_of(all, number, team),
            start + share_of(all, number + 1, team));
    }
    wait_for(threads);
    product_of o = {m.attended, m.attended_width, l->o, l->o_bias, s->states, s->states, hidden, tokens,
                    m.attended_width, hidden, threads};
    multiply_share(&o, number, team);
    wait_for(threads);
    norm_rows(s->states, l->post_norm, l->post_eps, hidden, first_token, end_token, m.normed);
    wait_for(threads);
    product_of both = {m.normed, hidden, l->gate_up, l->gate_up_bias, 0, m.both, 2 * s->features, tokens, hidden,
                       2 * s->features, threads};
    multiply_share(&both, number, team);
    wait_for(threads);
    gate_columns(m.both, s->features, tokens, share_of(s->features / LANES, number, team) * LANES,
                 number + 1 == team ? s->features : share_of(s->features / LANES, number + 1, team) * LANES,
                 m.both, 2 * s->features);
    wait_for(threads);
    product_of down = {m.both, 2 * s->features, l->down, l->down_bias, s->states, s->states, hidden, tokens,
                       s->features, hidden, threads};
    multiply_share(&down, number, team);
    wait_for(threads);
  }
}

/* Compute all layers of a step. */
void step(step_of *s) { run(step_in_thread, s, (int)s->threads); }
