/* What the parts of osgym-view.so share: the page of the clock, and the clocks that programs see. */
#ifndef VIEW_H
#define VIEW_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#define RUNNING 1
#define FROZEN 2
#define SECOND 1000000000LL
/* Seconds: a monotonic clock does not come so far (31 years), a wall clock is past it since 2001. */
#define WALL_CLOCK 1000000000LL
#define PAGE_LEAST 64
#define PAUSE_LOG 4096

struct pause {
    int64_t paused_ns;    /* time that the pauses before took */
    int64_t held_at_ns;   /* monotonic time from which one is held, a moment after this was written; 0: none is */
    int64_t held_wall_ns; /* the same on the wall clock */
};

/* The page. One writer (`osgym_guest/clock.py`), who sets `mode`, `pauses` and `ended` last. Anything but a known
 * mode is none. */
struct page {
    int64_t mode;
    int64_t value_ns;  /* RUNNING: what is added; FROZEN: the time */
    int64_t set_at_ns; /* real time when it was set */
    char blank[PAGE_LEAST - 3 * sizeof(int64_t)];
    int64_t pauses;    /* number of states so far; 0: nothing was ever held */
    struct pause states[2]; /* the newest is that of `pauses & 1` */
    int64_t ended;     /* number of pauses that ended */
    char rest[4096 - PAGE_LEAST - 8 * sizeof(int64_t)];
    struct { int64_t wall_ns, paused_ns; } log[PAUSE_LOG]; /* when each ended, and what all took by then */
};

/* Programs have names of their own. */
#pragma GCC visibility push(hidden)
int64_t view_mode(void);
int64_t view_pauses(void);
bool view_held(void);
int64_t view_real_ns(clockid_t clock);
/* What a clock shows to programs. */
int64_t view_shown_ns(clockid_t clock);
#pragma GCC visibility pop

/* The clocks besides the wall clock that stand still during a pause. */
static inline bool view_stands(clockid_t clock)
{
    return clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE || clock == CLOCK_MONOTONIC_RAW ||
           clock == CLOCK_BOOTTIME;
}

static inline int64_t ns_of(const struct timespec *at)
{
    return at->tv_sec * SECOND + at->tv_nsec;
}

static inline struct timespec timespec_of(int64_t ns)
{
    if (ns < 0)
        ns = 0;
    return (struct timespec){.tv_sec = ns / SECOND, .tv_nsec = ns % SECOND};
}

#endif
