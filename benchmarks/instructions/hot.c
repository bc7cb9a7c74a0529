/* The hot paths of the guest agent's native core over a frame in memory, for callgrind to count: each is a function
 * of its own here, called once, after a first round has warmed what is set up at first use. */
#define _GNU_SOURCE
#include "og.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 1920, HEIGHT = 1080 };

static uint32_t *screen;
static og_frame frame = {.width = WIDTH, .height = HEIGHT, .stripes = HEIGHT / OG_STRIPE_ROWS, .shm_id = -1};
static og_png png;
static unsigned long long sum; /* what is computed is used */

/* A desktop's kind of picture: flat areas, a gradient, and lines of small bright and dark spots as text has. */
static void paint(uint32_t seed) {
    for (int y = 0; y < HEIGHT; y++) {
        for (int x = 0; x < WIDTH; x++) {
            uint32_t p = y < 40 ? 0x303030u : 0xf6f5f4u;
            if (x > 1400) p = (uint32_t)(x / 8 + y / 8) * 0x010101u & 0xffffffu;
            if (x > 100 && x < 1300 && y > 60 && y % 20 < 12) {
                seed = seed * 1664525u + 1013904223u;
                if (seed >> 30 == 0) p = 0x202020u;
            }
            screen[y * WIDTH + x] = p;
        }
    }
}

#define COUNTED __attribute__((noinline, noclone)) void
COUNTED count_take_unchanged(void) { og_frame_take(&frame); }
COUNTED count_take_changed(void) { og_frame_take(&frame); }
COUNTED count_compare(void) {
    og_diff diff;
    og_frame_compare(&frame, (og_box){200, 200, 800, 600}, false, &diff);
    sum += (unsigned long long)diff.pixels;
}
COUNTED count_hash(void) { sum += og_frame_hash(&frame); }
static void encode(void) {
    uint8_t *out = NULL;
    long length = og_png_frame(&png, &frame, &out);
    if (length < 0) exit(1);
    sum += (unsigned long long)length;
    free(out);
}
COUNTED count_png_whole(void) { encode(); }
COUNTED count_png_one_line(void) { encode(); }
COUNTED count_png_unchanged(void) { encode(); }

/* As after damage of the whole screen. */
static void mark_all(void) { og_frame_mark(&frame, (og_box){0, 0, WIDTH, HEIGHT}); }

int main(void) {
    screen = malloc((size_t)WIDTH * HEIGHT * 4);
    frame.shadow = calloc((size_t)WIDTH * HEIGHT + 64, 4);
    frame.stale = calloc(HEIGHT, sizeof *frame.stale);
    if (!screen || !frame.shadow || !frame.stale) return 1;
    frame.source = (const uint8_t *)screen;
    frame.source_stride = WIDTH * 4;
    paint(1);
    mark_all();
    og_frame_take(&frame);
    og_frame_hash(&frame);
    encode();
    paint(2);
    count_compare();
    mark_all();
    count_take_changed();
    mark_all();
    count_take_unchanged();
    count_hash();
    count_png_whole();
    for (int x = 300; x < 500; x++) screen[500 * WIDTH + x] ^= 0xffffffu;
    mark_all();
    og_frame_take(&frame);
    og_frame_hash(&frame);
    count_png_one_line();
    count_png_unchanged();
    printf("%llu\n", sum);
    return 0;
}
