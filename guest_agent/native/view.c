/* osgym-view.so: what the programs of a replica see where it shares its host's: the wall clock and the disk.
 *
 * /etc/ld.so.preload names it, so that it is in every program.
 *
 * Clock: nothing changes until one is set (`osgym_guest/clock.py`), by a page of memory that all programs share:
 * those that run already follow at once. Two modes: RUNNING adds an offset, FROZEN stands still. Monotonic clocks
 * are the kernel's, so timers run as ever; waits until a wall-clock time are turned into monotonic ones. Files
 * that were written since the clock was set show the desktop's time. Not covered: programs that are linked
 * statically or ask the kernel themselves (futex by syscall(2)), and the file systems' own times.
 *
 * Disk: the root's free space is the host's, which another replica's writing changes while a file manager shows
 * it. It is seen as at most DISK_FREE, which is what a replica may write unless the host's settings say otherwise.
 *
 * The page: struct page below. One writer, who sets `mode` last. Anything but a known mode is none.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#ifndef PAGE
#define PAGE "/run/osgym/clock"
#endif
#define RUNNING 1
#define FROZEN 2
#define OVERLAY 0x794c7630
#define DISK_FREE (8ULL << 30)
#define SECOND 1000000000LL
/* Seconds: a monotonic clock does not come so far (31 years), a wall clock is past it since 2001. */
#define WALL_CLOCK 1000000000LL

struct page {
    int64_t mode;
    int64_t value_ns;  /* RUNNING: what is added; FROZEN: the time */
    int64_t set_at_ns; /* real time when it was set */
};

static const struct page *page;
static int (*kernel_clock)(clockid_t, struct timespec *);

__attribute__((constructor)) static void attach(void)
{
    kernel_clock = dlsym(RTLD_NEXT, "clock_gettime");
    int fd = (int)syscall(SYS_openat, AT_FDCWD, PAGE, O_RDONLY | O_CLOEXEC);
    struct stat file;
    if (fd < 0)
        return;
    if (syscall(SYS_fstat, fd, &file) == 0 && file.st_size >= (off_t)sizeof *page) {
        void *at = mmap(NULL, sizeof *page, PROT_READ, MAP_SHARED, fd, 0);
        if (at != MAP_FAILED)
            page = at;
    }
    syscall(SYS_close, fd);
}

static int64_t mode_now(void)
{
    int64_t mode = page ? __atomic_load_n(&page->mode, __ATOMIC_ACQUIRE) : 0;
    return mode == RUNNING || mode == FROZEN ? mode : 0;
}

static int real(clockid_t clock, struct timespec *out)
{
    return kernel_clock ? kernel_clock(clock, out) : (int)syscall(SYS_clock_gettime, clock, out);
}

static int64_t real_ns(clockid_t clock)
{
    struct timespec now = {0};
    real(clock, &now);
    return now.tv_sec * SECOND + now.tv_nsec;
}

static struct timespec timespec_of(int64_t ns)
{
    if (ns < 0)
        ns = 0;
    return (struct timespec){.tv_sec = ns / SECOND, .tv_nsec = ns % SECOND};
}

/* What the desktop's clock shows at a real time. Frozen, it is a nanosecond later than all files: `ls` says the
 * year instead of the time of what is not older than now. */
static int64_t shown_ns(int64_t mode, int64_t at_ns)
{
    return mode == FROZEN ? page->value_ns + 1 : at_ns + page->value_ns;
}

/* A time of the desktop's clock as one of a real clock: as far ahead there as it is here. */
static struct timespec deadline(int64_t mode, const struct timespec *at, clockid_t clock)
{
    if (at->tv_sec > INT64_MAX / SECOND / 4)
        return *at;
    int64_t left_ns = at->tv_sec * SECOND + at->tv_nsec - shown_ns(mode, real_ns(CLOCK_REALTIME));
    return timespec_of(real_ns(clock) + left_ns);
}

/* ---- asking for the time ---- */

int clock_gettime(clockid_t clock, struct timespec *out)
{
    int result = real(clock, out);
    int64_t mode;
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) && (mode = mode_now()))
        *out = timespec_of(shown_ns(mode, out->tv_sec * SECOND + out->tv_nsec));
    return result;
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

/* ---- waiting until a time ---- */

/* The C library's own function of this name, looked up once. */
#define NEXT(name)                                                     \
    ({                                                                 \
        static __typeof__(&name) next_;                                \
        __typeof__(&name) found_ = __atomic_load_n(&next_, __ATOMIC_RELAXED); \
        if (!found_) {                                                 \
            found_ = (__typeof__(&name))dlsym(RTLD_NEXT, #name);       \
            __atomic_store_n(&next_, found_, __ATOMIC_RELAXED);        \
        }                                                              \
        found_;                                                        \
    })

/* Choose the real clock to wait by; `at` of unnamed clocks (-1) is told by its size. */
static const struct timespec *until(clockid_t *clock, const struct timespec *at, struct timespec *room)
{
    int64_t mode = mode_now();
    if (*clock == -1)
        *clock = at->tv_sec > WALL_CLOCK ? CLOCK_REALTIME : CLOCK_MONOTONIC;
    if (*clock != CLOCK_REALTIME || !mode || at->tv_nsec < 0 || at->tv_nsec >= SECOND)
        return at;
    *clock = CLOCK_MONOTONIC;
    *room = deadline(mode, at, CLOCK_MONOTONIC);
    return room;
}

int pthread_cond_clockwait(pthread_cond_t *cond, pthread_mutex_t *mutex, clockid_t clock,
                           const struct timespec *at)
{
    struct timespec room;
    at = until(&clock, at, &room);
    return NEXT(pthread_cond_clockwait)(cond, mutex, clock, at);
}

/* The condition's attribute says the clock, which only the C library can read. */
int pthread_cond_timedwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict at)
{
    return pthread_cond_clockwait(cond, mutex, -1, at);
}

int pthread_mutex_clocklock(pthread_mutex_t *mutex, clockid_t clock, const struct timespec *at)
{
    struct timespec room;
    at = until(&clock, at, &room);
    return NEXT(pthread_mutex_clocklock)(mutex, clock, at);
}

int pthread_mutex_timedlock(pthread_mutex_t *restrict mutex, const struct timespec *restrict at)
{
    return pthread_mutex_clocklock(mutex, CLOCK_REALTIME, at);
}

int sem_clockwait(sem_t *sem, clockid_t clock, const struct timespec *at)
{
    struct timespec room;
    at = until(&clock, at, &room);
    return NEXT(sem_clockwait)(sem, clock, at);
}

int sem_timedwait(sem_t *restrict sem, const struct timespec *restrict at)
{
    return sem_clockwait(sem, CLOCK_REALTIME, at);
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *at, struct timespec *left)
{
    struct timespec room;
    if (flags & TIMER_ABSTIME)
        at = until(&clock, at, &room);
    return NEXT(clock_nanosleep)(clock, flags, at, left);
}

/* A timer was made with its clock: the time stays one of the wall clock, the real one. */
static const struct itimerspec *fires(bool absolute, const struct itimerspec *when, struct itimerspec *room)
{
    int64_t mode = mode_now();
    if (!absolute || !mode || when->it_value.tv_sec <= WALL_CLOCK)
        return when;
    *room = *when;
    room->it_value = deadline(mode, &when->it_value, CLOCK_REALTIME);
    return room;
}

int timerfd_settime(int fd, int flags, const struct itimerspec *when, struct itimerspec *before)
{
    struct itimerspec room;
    return NEXT(timerfd_settime)(fd, flags, fires(flags & TFD_TIMER_ABSTIME, when, &room), before);
}

int timer_settime(timer_t timer, int flags, const struct itimerspec *restrict when,
                  struct itimerspec *restrict before)
{
    struct itimerspec room;
    return NEXT(timer_settime)(timer, flags, fires(flags & TIMER_ABSTIME, when, &room), before);
}

/* ---- the times of files ---- */

/* Those of the image and those that a program gave a file itself are left as they are. */
static void show(int64_t mode, struct timespec *at)
{
    int64_t ns = at->tv_sec > INT64_MAX / SECOND / 4 ? 0 : at->tv_sec * SECOND + at->tv_nsec;
    if (ns >= page->set_at_ns && ns <= real_ns(CLOCK_REALTIME))
        *at = timespec_of(mode == FROZEN ? page->value_ns : shown_ns(mode, ns));
}

static int shown(int result, struct stat *file)
{
    int64_t mode = result == 0 ? mode_now() : 0;
    if (mode) {
        show(mode, &file->st_atim);
        show(mode, &file->st_mtim);
        show(mode, &file->st_ctim);
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

static void show_x(int64_t mode, struct statx_timestamp *at)
{
    struct timespec plain = {.tv_sec = at->tv_sec, .tv_nsec = at->tv_nsec};
    show(mode, &plain);
    at->tv_sec = plain.tv_sec;
    at->tv_nsec = (uint32_t)plain.tv_nsec;
}

int statx(int folder, const char *restrict path, int flags, unsigned mask, struct statx *restrict file)
{
    int result = (int)syscall(SYS_statx, folder, path, flags, mask, file);
    int64_t mode = result == 0 ? mode_now() : 0;
    if (mode) {
        show_x(mode, &file->stx_atime);
        show_x(mode, &file->stx_mtime);
        show_x(mode, &file->stx_ctime);
        show_x(mode, &file->stx_btime);
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
