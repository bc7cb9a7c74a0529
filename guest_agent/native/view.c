/* osgym-view.so: what the programs of a replica see where it shares its host's: the clocks and the disk.
 *
 * /etc/ld.so.preload names it, so that it is in every program.
 *
 * Clock: nothing changes until one is set (`osgym_guest/clock.py`), by a page of memory that all programs share:
 * those that run already follow at once. Two modes: RUNNING adds an offset, FROZEN stands still. Waits until a
 * wall-clock time are turned into monotonic ones. Files that were written since the clock was set show the
 * desktop's time.
 *
 * Pauses: while a pause is held, all clocks stand still, the monotonic ones too, so that a desktop whose processes
 * were stopped goes on as if no time had passed. A wait whose kernel timeout ended meanwhile goes on for what was
 * left of it (`view_waits.c`).
 *
 * Not covered: programs that are linked statically or ask the kernel themselves, and the file systems' own times.
 *
 * Disk: the root's free space is the host's, which another replica's writing changes while a file manager shows
 * it. It is seen as at most DISK_FREE, which is what a replica may write unless the host's settings say otherwise.
 */
#define _GNU_SOURCE
#include "view.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#ifndef PAGE
#define PAGE "/run/osgym/clock"
#endif
#define OVERLAY 0x794c7630
#define DISK_FREE (8ULL << 30)

static const struct page *page;
static int (*kernel_clock)(clockid_t, struct timespec *);

__attribute__((constructor)) static void attach(void)
{
    kernel_clock = dlsym(RTLD_NEXT, "clock_gettime");
    int fd = (int)syscall(SYS_openat, AT_FDCWD, PAGE, O_RDONLY | O_CLOEXEC);
    struct stat file;
    if (fd < 0)
        return;
    /* The log lies behind the end of the file until there is a pause. */
    if (syscall(SYS_fstat, fd, &file) == 0 && file.st_size >= PAGE_LEAST) {
        void *at = mmap(NULL, sizeof *page, PROT_READ, MAP_SHARED, fd, 0);
        if (at != MAP_FAILED)
            page = at;
    }
    syscall(SYS_close, fd);
}

int64_t view_mode(void)
{
    int64_t mode = page ? __atomic_load_n(&page->mode, __ATOMIC_ACQUIRE) : 0;
    return mode == RUNNING || mode == FROZEN ? mode : 0;
}

int64_t view_pauses(void)
{
    return page ? __atomic_load_n(&page->pauses, __ATOMIC_ACQUIRE) : 0;
}

/* The newest state; a writer fills the other one before it counts up. */
static struct pause newest(void)
{
    for (;;) {
        int64_t count = view_pauses();
        if (count == 0)
            return (struct pause){0};
        struct pause found = page->states[count & 1];
        if (view_pauses() == count)
            return found;
    }
}

static int real(clockid_t clock, struct timespec *out)
{
    return kernel_clock ? kernel_clock(clock, out) : (int)syscall(SYS_clock_gettime, clock, out);
}

int64_t view_real_ns(clockid_t clock)
{
    struct timespec now = {0};
    real(clock, &now);
    return ns_of(&now);
}

/* What the wall clock shows at a real time, which is the paused time later. Frozen, it is a nanosecond later than all
 * files: `ls` says the year instead of the time of what is not older than now. */
static int64_t wall_ns(int64_t mode, int64_t at_ns, int64_t paused)
{
    if (mode == FROZEN)
        return page->value_ns + 1;
    return at_ns - paused + (mode == RUNNING ? page->value_ns : 0);
}

static bool is_wall(clockid_t clock)
{
    return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
}

bool view_held(void)
{
    struct pause pause = newest();
    return pause.held_at_ns && view_real_ns(CLOCK_MONOTONIC) >= pause.held_at_ns;
}

int64_t view_shown_ns(clockid_t clock)
{
    int64_t mode = is_wall(clock) ? view_mode() : 0;
    int64_t count, now_ns;
    struct pause pause;
    do { /* a pause that ends in between would be taken from a time before it */
        count = view_pauses();
        pause = newest();
        now_ns = view_real_ns(clock);
        if (pause.held_at_ns) {
            int64_t held_ns = view_real_ns(CLOCK_MONOTONIC) - pause.held_at_ns;
            int64_t at_ns = is_wall(clock) ? pause.held_wall_ns
                            : clock == CLOCK_MONOTONIC ? pause.held_at_ns : now_ns - (held_ns > 0 ? held_ns : 0);
            now_ns = at_ns < now_ns ? at_ns : now_ns;
        }
    } while (view_pauses() != count);
    return is_wall(clock) ? wall_ns(mode, now_ns, pause.paused_ns) : now_ns - pause.paused_ns;
}

/* A coarse clock would go back by its coarseness when a pause ends. */
static clockid_t fine(clockid_t clock)
{
    return clock == CLOCK_REALTIME_COARSE ? CLOCK_REALTIME : clock == CLOCK_MONOTONIC_COARSE ? CLOCK_MONOTONIC : clock;
}

/* ---- asking for the time ---- */

int clock_gettime(clockid_t clock, struct timespec *out)
{
    bool paused = view_pauses() && (is_wall(clock) || view_stands(clock));
    if (!paused && !(is_wall(clock) && view_mode()))
        return real(clock, out);
    *out = timespec_of(view_shown_ns(paused ? fine(clock) : clock));
    return 0;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone)
{
    struct timespec now;
    if (zone)
        *(struct timezone *)zone = (struct timezone){0};
    clock_gettime(CLOCK_REALTIME, &now);
    *out = (struct timeval){.tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000};
    return 0;
}

time_t time(time_t *out)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    if (out)
        *out = now.tv_sec;
    return now.tv_sec;
}

int timespec_get(struct timespec *out, int base)
{
    return base == TIME_UTC && clock_gettime(CLOCK_REALTIME, out) == 0 ? base : 0;
}

/* ---- the times of files ---- */

/* Whether times of files differ from the disk's. */
static bool files_differ(void)
{
    return view_mode() || view_pauses();
}

/* A real time of the past without the pauses until then; one within a pause is as late as its end. */
static int64_t without_pauses(int64_t ns)
{
    if (view_pauses() == 0)
        return ns;
    int64_t count = __atomic_load_n(&page->ended, __ATOMIC_ACQUIRE);
    int64_t low = 0, high = count = count < PAUSE_LOG ? count : PAUSE_LOG;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (page->log[middle].wall_ns <= ns)
            low = middle + 1;
        else
            high = middle;
    }
    ns -= low ? page->log[low - 1].paused_ns : 0;
    int64_t latest = low < count ? page->log[low].wall_ns - page->log[low].paused_ns : INT64_MAX;
    return ns < latest ? ns : latest;
}

/* Those of the image and those that a program gave a file itself are left as they are. */
static void show(struct timespec *at)
{
    int64_t mode = view_mode();
    int64_t ns = at->tv_sec > INT64_MAX / SECOND / 4 ? 0 : ns_of(at);
    if ((mode && ns < page->set_at_ns) || ns > view_real_ns(CLOCK_REALTIME))
        return;
    if (mode == FROZEN) {
        *at = timespec_of(page->value_ns);
        return;
    }
    int64_t shown_ns = wall_ns(mode, without_pauses(ns), 0), now_ns = view_shown_ns(CLOCK_REALTIME);
    *at = timespec_of(shown_ns < now_ns ? shown_ns : now_ns);
}

static int shown(int result, struct stat *file)
{
    if (result == 0 && files_differ()) {
        show(&file->st_atim);
        show(&file->st_mtim);
        show(&file->st_ctim);
    }
    return result;
}

int fstatat(int folder, const char *restrict path, struct stat *restrict file, int flags)
{
    return shown((int)syscall(SYS_newfstatat, folder, path, file, flags), file);
}

int stat(const char *restrict path, struct stat *restrict file)
{
    return fstatat(AT_FDCWD, path, file, 0);
}

int lstat(const char *restrict path, struct stat *restrict file)
{
    return fstatat(AT_FDCWD, path, file, AT_SYMLINK_NOFOLLOW);
}

int fstat(int fd, struct stat *file)
{
    return shown((int)syscall(SYS_fstat, fd, file), file);
}

/* The same on every 64-bit machine: programs for large files call them by these names. */
int fstatat64(int, const char *restrict, struct stat64 *restrict, int) __attribute__((alias("fstatat")));
int stat64(const char *restrict, struct stat64 *restrict) __attribute__((alias("stat")));
int lstat64(const char *restrict, struct stat64 *restrict) __attribute__((alias("lstat")));
int fstat64(int, struct stat64 *) __attribute__((alias("fstat")));

static void show_x(struct statx_timestamp *at)
{
    struct timespec plain = {.tv_sec = at->tv_sec, .tv_nsec = at->tv_nsec};
    show(&plain);
    at->tv_sec = plain.tv_sec;
    at->tv_nsec = (uint32_t)plain.tv_nsec;
}

int statx(int folder, const char *restrict path, int flags, unsigned mask, struct statx *restrict file)
{
    int result = (int)syscall(SYS_statx, folder, path, flags, mask, file);
    if (result == 0 && files_differ()) {
        show_x(&file->stx_atime);
        show_x(&file->stx_mtime);
        show_x(&file->stx_ctime);
        show_x(&file->stx_btime);
    }
    return result;
}

/* ---- the room on the disk ---- */

static int seen(int result, struct statfs *disk)
{
    if (result == 0 && disk->f_type == OVERLAY && disk->f_bsize > 0) {
        fsblkcnt_t most = DISK_FREE / disk->f_bsize;
        if (disk->f_bavail > most)
            disk->f_bfree = disk->f_bavail = most;
        if (disk->f_blocks > 2 * most)
            disk->f_blocks = 2 * most;
        /* Of files there are as many as of the host's as well. */
        disk->f_ffree = disk->f_files = 0;
    }
    return result;
}

int statfs(const char *path, struct statfs *disk)
{
    return seen((int)syscall(SYS_statfs, path, disk), disk);
}

int fstatfs(int fd, struct statfs *disk)
{
    return seen((int)syscall(SYS_fstatfs, fd, disk), disk);
}

static int as_vfs(int result, const struct statfs *disk, struct statvfs *out)
{
    if (result == 0)
        *out = (struct statvfs){
            .f_bsize = disk->f_bsize,
            .f_frsize = disk->f_frsize ? disk->f_frsize : disk->f_bsize,
            .f_blocks = disk->f_blocks,
            .f_bfree = disk->f_bfree,
            .f_bavail = disk->f_bavail,
            .f_files = disk->f_files,
            .f_ffree = disk->f_ffree,
            .f_favail = disk->f_ffree,
            .f_fsid = (unsigned)disk->f_fsid.__val[0] | (unsigned long)(unsigned)disk->f_fsid.__val[1] << 32,
            .f_flag = disk->f_flags & ~0x20UL, /* the kernel's own mark that there are flags */
            .f_namemax = disk->f_namelen,
        };
    return result;
}

int statvfs(const char *restrict path, struct statvfs *restrict out)
{
    struct statfs disk;
    return as_vfs(statfs(path, &disk), &disk, out);
}

int fstatvfs(int fd, struct statvfs *out)
{
    struct statfs disk;
    return as_vfs(fstatfs(fd, &disk), &disk, out);
}

int statfs64(const char *, struct statfs64 *) __attribute__((alias("statfs")));
int fstatfs64(int, struct statfs64 *) __attribute__((alias("fstatfs")));
int statvfs64(const char *restrict, struct statvfs64 *restrict) __attribute__((alias("statvfs")));
int fstatvfs64(int, struct statvfs64 *) __attribute__((alias("fstatvfs")));
