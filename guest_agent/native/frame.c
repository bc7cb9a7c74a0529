/* The frame we know, and how the screen differs from it. */
#define _GNU_SOURCE
#include "og.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <unistd.h>

#define RGB 0x00ffffffu

/* Words of an XWD header, all big endian. */
enum { XWD_HEADER_SIZE = 0, XWD_WIDTH = 4, XWD_HEIGHT = 5, XWD_BITS_PER_PIXEL = 11,
       XWD_BYTES_PER_LINE = 12, XWD_COLORS = 19, XWD_WORDS = 25, XWD_COLOR_BYTES = 12 };

static uint32_t xwd_word(const void *map, int index) {
    uint32_t word;
    memcpy(&word, (const uint8_t *)map + 4 * index, 4);
    return __builtin_bswap32(word);
}

static int map_fbdir(og_frame *f, const char *fbdir) {
    char path[4096];
    if (snprintf(path, sizeof path, "%s/Xvfb_screen0", fbdir) >= (int)sizeof path) return OG_FAILED;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return OG_FAILED;
    struct stat st;
    if (fstat(fd, &st) || st.st_size < 4 * XWD_WORDS) {
        close(fd);
        return OG_FAILED;
    }
    void *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (map == MAP_FAILED) return OG_FAILED;
    size_t offset = xwd_word(map, XWD_HEADER_SIZE) + (size_t)xwd_word(map, XWD_COLORS) * XWD_COLOR_BYTES;
    size_t stride = xwd_word(map, XWD_BYTES_PER_LINE);
    if ((int)xwd_word(map, XWD_WIDTH) != f->width || (int)xwd_word(map, XWD_HEIGHT) != f->height ||
        xwd_word(map, XWD_BITS_PER_PIXEL) != 32 || stride < (size_t)f->width * 4 ||
        offset + stride * (size_t)f->height > (size_t)st.st_size) {
        munmap(map, (size_t)st.st_size);
        return OG_UNSUPPORTED;
    }
    f->map = map;
    f->map_bytes = (size_t)st.st_size;
    f->source = (const uint8_t *)map + offset;
    f->source_stride = stride;
    f->is_fbdir = true;
    return OG_OK;
}

static int make_shm(og_frame *f) {
    size_t bytes = (size_t)f->width * (size_t)f->height * 4;
    f->shm_id = shmget(IPC_PRIVATE, bytes, IPC_CREAT | 0600);
    if (f->shm_id < 0) return OG_FAILED;
    void *map = shmat(f->shm_id, NULL, 0);
    if (map == (void *)-1) {
        shmctl(f->shm_id, IPC_RMID, NULL);
        return OG_FAILED;
    }
    f->map = map;
    f->map_bytes = bytes;
    f->source = map;
    f->source_stride = (size_t)f->width * 4;
    return OG_OK;
}

int og_frame_open(og_frame *f, int width, int height, const char *fbdir) {
    memset(f, 0, sizeof *f);
    f->shm_id = -1;
    f->width = width;
    f->height = height;
    f->stripes = (height + OG_STRIPE_ROWS - 1) / OG_STRIPE_ROWS;
    if (f->stripes > OG_MAX_STRIPES) return OG_UNSUPPORTED;
    int status = fbdir ? map_fbdir(f, fbdir) : make_shm(f);
    if (status) return status;
    f->shadow = calloc((size_t)width * (size_t)height, 4);
    f->stale = calloc((size_t)height, sizeof *f->stale);
    if (!f->shadow || !f->stale) return OG_NO_MEMORY;
    og_frame_mark(f, (og_box){0, 0, width, height});
    memset(f->hash_stale, 1, sizeof f->hash_stale);
    memset(f->unmasked_stale, 1, sizeof f->unmasked_stale);
    memset(f->png_stale, 1, sizeof f->png_stale);
    return OG_OK;
}

void og_frame_close(og_frame *f) {
    free(f->shadow);
    free(f->stale);
    if (f->map && f->is_fbdir) munmap(f->map, f->map_bytes);
    if (f->map && !f->is_fbdir) shmdt(f->map);
    if (f->shm_id >= 0) shmctl(f->shm_id, IPC_RMID, NULL);
    memset(f, 0, sizeof *f);
    f->shm_id = -1;
}

static inline const uint32_t *source_row(const og_frame *f, int y) {
    return (const uint32_t *)(const void *)(f->source + (size_t)y * f->source_stride);
}

bool og_frame_masks(const og_frame *f, int x, int y) {
    for (int i = 0; i < f->mask_count; i++) {
        const og_box *m = &f->masks[i];
        if (x >= m->x0 && x < m->x1 && y >= m->y0 && y < m->y1) return true;
    }
    return false;
}

void og_frame_set_masks(og_frame *f, const og_box *masks, int count) {
    size_t bytes = (size_t)count * sizeof *masks;
    if (count == f->mask_count && !memcmp(masks, f->masks, bytes)) return;
    memcpy(f->masks, masks, bytes);
    f->mask_count = count;
    memset(f->unmasked_stale, 1, sizeof f->unmasked_stale);
}

static bool box_is_masked(const og_frame *f, og_box b) {
    for (int i = 0; i < f->mask_count; i++) {
        const og_box *m = &f->masks[i];
        if (b.x0 >= m->x0 && b.x1 <= m->x1 && b.y0 >= m->y0 && b.y1 <= m->y1) return true;
    }
    return false;
}

/* Whether two rows of pixels differ in RGB; the padding byte does not count. */
static bool rows_differ(const uint32_t *a, const uint32_t *b, int n) {
    if (!memcmp(a, b, (size_t)n * 4)) return false;
    uint32_t any = 0;
    for (int i = 0; i < n; i++) any |= a[i] ^ b[i];
    return (any & RGB) != 0;
}

static void mark_stale(og_frame *f, int y) {
    f->hash_stale[y / OG_STRIPE_ROWS] = true;
    f->unmasked_stale[y / OG_STRIPE_ROWS] = true;
    f->png_stale[y / OG_STRIPE_ROWS] = true;
}

static og_box clipped(const og_frame *f, og_box box) {
    if (box.x0 < 0) box.x0 = 0;
    if (box.y0 < 0) box.y0 = 0;
    if (box.x1 > f->width) box.x1 = f->width;
    if (box.y1 > f->height) box.y1 = f->height;
    return box;
}

void og_frame_compare(og_frame *f, og_box box, bool update, og_diff *diff) {
    diff->pixels = 0;
    diff->box = (og_box){f->width, f->height, 0, 0};
    if (!update) og_frame_mark(f, box);
    box = clipped(f, box);
    int n = box.x1 - box.x0;
    if (n <= 0 || box.y1 <= box.y0) return;
    bool masked_whole = box_is_masked(f, box);
    for (int y = box.y0; y < box.y1; y++) {
        const uint32_t *now = source_row(f, y) + box.x0;
        uint32_t *known = f->shadow + (size_t)y * (size_t)f->width + box.x0;
        if (!rows_differ(now, known, n)) continue;
        if (!masked_whole) {
            for (int i = 0; i < n; i++) {
                uint32_t p = now[i] & RGB, q = known[i] & RGB;
                if (p == q || (f->mask_count && og_frame_masks(f, box.x0 + i, y))) continue;
                diff->pixels++;
                int x = box.x0 + i;
                if (x < diff->box.x0) diff->box.x0 = x;
                if (x >= diff->box.x1) diff->box.x1 = x + 1;
                if (y < diff->box.y0) diff->box.y0 = y;
                if (y >= diff->box.y1) diff->box.y1 = y + 1;
            }
        }
        if (update) {
            memcpy(known, now, (size_t)n * 4);
            mark_stale(f, y);
        }
    }
    if (!diff->pixels) diff->box = (og_box){0, 0, 0, 0};
}

void og_frame_mark(og_frame *f, og_box box) {
    box = clipped(f, box);
    if (box.x1 <= box.x0) return;
    for (int y = box.y0; y < box.y1; y++) {
        og_span *span = &f->stale[y];
        bool none = span->x1 <= span->x0;
        if (none || box.x0 < span->x0) span->x0 = box.x0;
        if (none || box.x1 > span->x1) span->x1 = box.x1;
    }
}

void og_frame_take(og_frame *f) {
    for (int y = 0; y < f->height; y++) {
        og_span *span = &f->stale[y];
        int n = span->x1 - span->x0;
        if (n <= 0) continue;
        const uint32_t *now = source_row(f, y) + span->x0;
        uint32_t *known = f->shadow + (size_t)y * (size_t)f->width + span->x0;
        *span = (og_span){0, 0};
        if (!rows_differ(now, known, n)) continue;
        memcpy(known, now, (size_t)n * 4);
        mark_stale(f, y);
    }
    /* Pages that a second process has mapped are not moved to swap one by one. */
    if (f->is_fbdir) madvise(f->map, f->map_bytes, MADV_DONTNEED);
}

/* A text caret: one upright bar, a few pixels wide and a line high. Of any colours, and with gaps: it may have soft
 * edges, and stand on a part of a letter that has its colour. */
bool og_is_caret(const og_diff *d) {
    int w = d->box.x1 - d->box.x0, h = d->box.y1 - d->box.y0;
    return w >= 1 && w <= 3 && h >= 6 && h <= 64 && 4 * d->pixels >= 3 * (long)w * h;
}

static uint64_t mix(uint64_t x) {
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93ull;
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93ull;
    return x ^ (x >> 32);
}

static uint64_t hash_rows(const uint32_t *pixels, size_t count) {
    const uint64_t keep = 0x00ffffff00ffffffull, k = 0x9e3779b97f4a7c15ull;
    uint64_t lane[4] = {1, 2, 3, 4};
    size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        uint64_t w[4];
        memcpy(w, pixels + i, 32);
        for (int j = 0; j < 4; j++) {
            lane[j] = (lane[j] ^ (w[j] & keep)) * k;
            lane[j] ^= lane[j] >> 29;
        }
    }
    for (; i < count; i++) lane[0] = (lane[0] ^ (pixels[i] & RGB)) * k + 1;
    return mix(lane[0] + mix(lane[1] + mix(lane[2] + mix(lane[3]))));
}

uint64_t og_frame_hash(og_frame *f) {
    uint64_t hash = mix(((uint64_t)f->width << 32) | (uint64_t)f->height);
    for (int s = 0; s < f->stripes; s++) {
        if (f->hash_stale[s]) {
            int y = s * OG_STRIPE_ROWS;
            int rows = f->height - y < OG_STRIPE_ROWS ? f->height - y : OG_STRIPE_ROWS;
            f->stripe_hash[s] = hash_rows(f->shadow + (size_t)y * (size_t)f->width,
                                          (size_t)rows * (size_t)f->width);
            f->hash_stale[s] = false;
        }
        hash = mix(hash + f->stripe_hash[s]);
    }
    return hash;
}

static bool stripe_is_masked(const og_frame *f, int y0, int y1) {
    for (int i = 0; i < f->mask_count; i++)
        if (f->masks[i].y0 < y1 && f->masks[i].y1 > y0) return true;
    return false;
}

/* A row without its masked pixels. */
static uint64_t hash_unmasked_row(const og_frame *f, int y, uint32_t *row) {
    memcpy(row, f->shadow + (size_t)y * (size_t)f->width, (size_t)f->width * 4);
    for (int i = 0; i < f->mask_count; i++) {
        const og_box *m = &f->masks[i];
        if (y < m->y0 || y >= m->y1) continue;
        int x0 = m->x0 < 0 ? 0 : m->x0, x1 = m->x1 > f->width ? f->width : m->x1;
        if (x1 > x0) memset(row + x0, 0, (size_t)(x1 - x0) * 4);
    }
    return hash_rows(row, (size_t)f->width);
}

static uint64_t hash_unmasked_rows(const og_frame *f, int y0, int y1, uint32_t *row) {
    uint64_t hash = 0;
    for (int y = y0; y < y1; y++) hash = mix(hash + hash_unmasked_row(f, y, row));
    return hash;
}

uint64_t og_frame_hash_unmasked(og_frame *f) {
    uint64_t whole = og_frame_hash(f);
    uint32_t *row = f->mask_count ? malloc((size_t)f->width * 4) : NULL;
    if (!row) return whole;
    uint64_t hash = mix(((uint64_t)f->width << 32) | (uint64_t)f->height);
    for (int s = 0; s < f->stripes; s++) {
        int y0 = s * OG_STRIPE_ROWS, y1 = y0 + OG_STRIPE_ROWS < f->height ? y0 + OG_STRIPE_ROWS : f->height;
        if (f->unmasked_stale[s]) {
            f->unmasked_hash[s] =
                stripe_is_masked(f, y0, y1) ? hash_unmasked_rows(f, y0, y1, row) : f->stripe_hash[s];
            f->unmasked_stale[s] = false;
        }
        hash = mix(hash + f->unmasked_hash[s]);
    }
    free(row);
    return hash;
}
