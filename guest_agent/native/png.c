/* PNG of the frame, in stripes: each is a deflate stream of its own up to a full flush, so that the
 * ones that did not change are used again and the whole is one ordinary PNG. The first row of a
 * stripe is filtered Sub, the others Up. */
#define _GNU_SOURCE
#include "og.h"

#include <isa-l/crc.h>
#include <isa-l/igzip_lib.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <tmmintrin.h>
#endif

#define ADLER_BASE 65521u
enum { CHUNK_HEAD = 8, CHUNK_OVERHEAD = 12, FILTER_SUB = 1, FILTER_UP = 2 };

static void put32(uint8_t *p, uint32_t v) {
    v = __builtin_bswap32(v);
    memcpy(p, &v, 4);
}

/* 4-byte pixels B G R x to 3-byte R G B. `in` holds 16 readable bytes beyond its end, `out` takes. */
static void pack_scalar(const uint8_t *in, uint8_t *out, int count) {
    for (int i = 0; i < count; i++, in += 4, out += 3) {
        out[0] = in[2];
        out[1] = in[1];
        out[2] = in[0];
    }
}

#if defined(__x86_64__)
__attribute__((target("ssse3"))) static void pack_ssse3(const uint8_t *in, uint8_t *out, int count) {
    const __m128i order = _mm_setr_epi8(2, 1, 0, 6, 5, 4, 10, 9, 8, 14, 13, 12, -1, -1, -1, -1);
    int i = 0;
    for (; i + 4 <= count; i += 4, in += 16, out += 12) {
        __m128i pixels = _mm_loadu_si128((const __m128i *)(const void *)in);
        _mm_storeu_si128((__m128i *)(void *)out, _mm_shuffle_epi8(pixels, order));
    }
    pack_scalar(in, out, count - i);
}
#endif

static void pack(const uint8_t *in, uint8_t *out, int count) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("ssse3")) {
        pack_ssse3(in, out, count);
        return;
    }
#endif
    pack_scalar(in, out, count);
}

/* The bytes of a row minus those of another. */
static void subtract(const uint8_t *restrict a, const uint8_t *restrict b, uint8_t *restrict out, int n) {
    for (int i = 0; i < n; i++) out[i] = (uint8_t)(a[i] - b[i]);
}

static size_t filter_rows(og_png *png, const uint32_t *pixels, int stride, int width, int rows) {
    uint8_t *out = png->filtered, *diff = png->difference;
    for (int y = 0; y < rows; y++) {
        const uint8_t *row = (const uint8_t *)(pixels + (size_t)y * (size_t)stride);
        if (y == 0) {
            *out++ = FILTER_SUB;
            memcpy(diff, row, 4);
            subtract(row + 4, row, diff + 4, (width - 1) * 4);
        } else {
            *out++ = FILTER_UP;
            subtract(row, row - (size_t)stride * 4, diff, width * 4);
        }
        pack(diff, out, width);
        out += (size_t)width * 3;
    }
    return (size_t)(out - png->filtered);
}

static int make_room(og_png *png, int width) {
    size_t need = (size_t)(width * 3 + 1) * OG_STRIPE_ROWS + 64;
    if (png->filtered_capacity < need) {
        free(png->filtered);
        free(png->difference);
        free(png->chunk);
        png->filtered_capacity = 0;
        png->chunk_capacity = need + need / 8 + 1024;
        png->filtered = malloc(need);
        png->difference = malloc((size_t)width * 4 + 64);
        png->chunk = malloc(png->chunk_capacity);
        if (!png->filtered || !png->difference || !png->chunk) return OG_NO_MEMORY;
        png->filtered_capacity = need;
    }
    if (!png->level_buffer) png->level_buffer = malloc(ISAL_DEF_LVL1_DEFAULT);
    return png->level_buffer ? OG_OK : OG_NO_MEMORY;
}

/* Encode rows into one whole IDAT chunk. */
static int encode_stripe(og_png *png, og_stripe *s, const uint32_t *pixels, int stride, int width, int rows,
                         bool first) {
    size_t raw = filter_rows(png, pixels, stride, width, rows);
    uint8_t *chunk = png->chunk, *p = chunk + CHUNK_HEAD;
    if (first) {
        *p++ = 0x78; /* zlib header: deflate, 32 KB window, fastest */
        *p++ = 0x01;
    }
    static _Thread_local struct isal_zstream z;
    isal_deflate_stateless_init(&z);
    z.level = 1;
    z.level_buf = png->level_buffer;
    z.level_buf_size = ISAL_DEF_LVL1_DEFAULT;
    z.flush = FULL_FLUSH;
    z.end_of_stream = 0;
    z.next_in = png->filtered;
    z.avail_in = (uint32_t)raw;
    z.next_out = p;
    z.avail_out = (uint32_t)(chunk + png->chunk_capacity - p - 8);
    if (isal_deflate_stateless(&z) != COMP_OK || z.avail_in) return OG_FAILED;
    size_t data = (size_t)(z.next_out - (chunk + CHUNK_HEAD));
    put32(chunk, (uint32_t)data);
    memcpy(chunk + 4, "IDAT", 4);
    put32(z.next_out, crc32_gzip_refl(0, chunk + 4, data + 4));
    uint8_t *bytes = realloc(s->bytes, data + CHUNK_OVERHEAD);
    if (!bytes) return OG_NO_MEMORY;
    memcpy(bytes, chunk, data + CHUNK_OVERHEAD);
    s->bytes = bytes;
    s->length = data + CHUNK_OVERHEAD;
    s->raw_length = raw;
    s->adler = isal_adler32(1, png->filtered, raw);
    return OG_OK;
}

static uint32_t adler_combine(uint32_t a, uint32_t b, size_t b_length) {
    uint32_t rem = (uint32_t)(b_length % ADLER_BASE);
    uint32_t low = (a & 0xffff) + (b & 0xffff) + ADLER_BASE - 1;
    uint32_t high = (uint32_t)(((uint64_t)rem * (a & 0xffff)) % ADLER_BASE) + (a >> 16) + (b >> 16) +
                    ADLER_BASE - rem;
    return (low % ADLER_BASE) | (high % ADLER_BASE) << 16;
}

static uint8_t *put_chunk(uint8_t *p, const char *type, const uint8_t *data, uint32_t length) {
    put32(p, length);
    memcpy(p + 4, type, 4);
    memcpy(p + 8, data, length);
    put32(p + 8 + length, crc32_gzip_refl(0, p + 4, (uint64_t)length + 4));
    return p + length + CHUNK_OVERHEAD;
}

static long assemble(const og_stripe *stripes, int count, int width, int height, uint8_t **out) {
    size_t total = 128;
    uint32_t adler = 1;
    for (int s = 0; s < count; s++) {
        total += stripes[s].length;
        adler = adler_combine(adler, stripes[s].adler, stripes[s].raw_length);
    }
    uint8_t *bytes = malloc(total);
    if (!bytes) return OG_NO_MEMORY;
    uint8_t *p = bytes;
    memcpy(p, "\x89PNG\r\n\x1a\n", 8);
    p += 8;
    uint8_t header[13] = {0, 0, 0, 0, 0, 0, 0, 0, 8, 2, 0, 0, 0}; /* 8 bits, RGB */
    put32(header, (uint32_t)width);
    put32(header + 4, (uint32_t)height);
    p = put_chunk(p, "IHDR", header, 13);
    for (int s = 0; s < count; s++) {
        memcpy(p, stripes[s].bytes, stripes[s].length);
        p += stripes[s].length;
    }
    uint8_t tail[6] = {0x03, 0x00}; /* an empty last block */
    put32(tail + 2, adler);
    p = put_chunk(p, "IDAT", tail, 6);
    p = put_chunk(p, "IEND", tail, 0);
    *out = bytes;
    return (long)(p - bytes);
}

long og_png_frame(og_png *png, og_frame *f, uint8_t **out) {
    int status = make_room(png, f->width);
    if (status) return status;
    for (int s = 0; s < f->stripes; s++) {
        if (!f->png_stale[s]) continue;
        int y = s * OG_STRIPE_ROWS;
        int rows = f->height - y < OG_STRIPE_ROWS ? f->height - y : OG_STRIPE_ROWS;
        status = encode_stripe(png, &png->stripes[s], f->shadow + (size_t)y * (size_t)f->width, f->width,
                               f->width, rows, s == 0);
        if (status) return status;
        f->png_stale[s] = false;
    }
    return assemble(png->stripes, f->stripes, f->width, f->height, out);
}

long og_png_region(og_png *png, const og_frame *f, og_box r, uint8_t **out) {
    int width = r.x1 - r.x0, height = r.y1 - r.y0;
    int count = (height + OG_STRIPE_ROWS - 1) / OG_STRIPE_ROWS;
    long status = make_room(png, f->width);
    og_stripe *stripes = calloc((size_t)count, sizeof *stripes);
    if (!stripes) return OG_NO_MEMORY;
    for (int s = 0; s < count && !status; s++) {
        int y = r.y0 + s * OG_STRIPE_ROWS;
        int rows = r.y1 - y < OG_STRIPE_ROWS ? r.y1 - y : OG_STRIPE_ROWS;
        status = encode_stripe(png, &stripes[s], f->shadow + (size_t)y * (size_t)f->width + r.x0, f->width,
                               width, rows, s == 0);
    }
    if (!status) status = assemble(stripes, count, width, height, out);
    for (int s = 0; s < count; s++) free(stripes[s].bytes);
    free(stripes);
    return status;
}

void og_png_free(og_png *png) {
    for (int s = 0; s < OG_MAX_STRIPES; s++) free(png->stripes[s].bytes);
    free(png->filtered);
    free(png->difference);
    free(png->chunk);
    free(png->level_buffer);
    memset(png, 0, sizeof *png);
}
