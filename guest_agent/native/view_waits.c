/* Waits of programs by the clocks of view.c.
 *
 * A wait until a time is one by the real monotonic clock. A wait that the kernel ends too early, because of a pause,
 * goes on for what is left of it, or ends like one that was woken for no reason, where programs expect that.
 *
 * SIGALRM of a timer that is not due by the desktop's clock starts the timer again instead of the program's handler.
 *
 * Not covered: timerfd_settime during a pause, other signals of timers, SIGALRM without a handler.
 */
#define _GNU_SOURCE
#include "view.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* While a pause is held, but processes still run, nobody waits for less than this. */
#define LEAST_NS 1000000

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

/* A wait that has begun: when it ends by the desktop's monotonic clock. */
struct wait {
    int64_t pauses, ends_ns;
};

static struct wait begin(int64_t left_ns)
{
    int64_t now_ns = view_shown_ns(CLOCK_MONOTONIC);
    return (struct wait){view_pauses(), left_ns > INT64_MAX - now_ns ? INT64_MAX : now_ns + left_ns};
}

/* What is left of a wait whose timeout has ended: 0, unless there was a pause. */
static int64_t left_of(const struct wait *wait)
{
    int64_t pauses = view_pauses();
    if (pauses == 0 || (pauses == wait->pauses && !view_held()))
        return 0;
    int64_t left_ns = wait->ends_ns - view_shown_ns(CLOCK_MONOTONIC);
    return left_ns <= 0 ? 0 : left_ns < LEAST_NS ? LEAST_NS : left_ns;
}

static bool is_time(const struct timespec *at)
{
    return at && at->tv_sec >= 0 && at->tv_nsec >= 0 && at->tv_nsec < SECOND;
}

static int64_t length_of(const struct timespec *at)
{
    return at->tv_sec > INT64_MAX / SECOND / 4 ? INT64_MAX / 4 : ns_of(at);
}

/* ---- for descriptors ---- */

static int as_ms(int64_t ns)
{
    int64_t ms = (ns + 999999) / 1000000;
    return ms > INT_MAX ? INT_MAX : (int)ms;
}

/* CALL, which waits for what is left, until it ends for another reason than its timeout. */
#define WAITING(length_ns, left_ns, ended, CALL)     \
    ({                                               \
        int64_t left_ns = (length_ns);               \
        struct wait wait_ = begin(left_ns);          \
        __typeof__(CALL) result_;                    \
        do                                           \
            result_ = (CALL);                        \
        while ((ended) && (left_ns = left_of(&wait_))); \
        result_;                                     \
    })

int poll(struct pollfd *fds, nfds_t count, int timeout)
{
    if (timeout <= 0)
        return NEXT(poll)(fds, count, timeout);
    return WAITING(timeout * 1000000LL, left, result_ == 0, NEXT(poll)(fds, count, as_ms(left)));
}

int __poll_chk(struct pollfd *fds, nfds_t count, int timeout, size_t room)
{
    (void)room;
    return poll(fds, count, timeout);
}

int ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask)
{
    if (!is_time(timeout) || ns_of(timeout) == 0)
        return NEXT(ppoll)(fds, count, timeout, mask);
    struct timespec at;
    return WAITING(length_of(timeout), left, result_ == 0,
                   (at = timespec_of(left), NEXT(ppoll)(fds, count, &at, mask)));
}

int __ppoll_chk(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask, size_t room)
{
    (void)room;
    return ppoll(fds, count, timeout, mask);
}

/* A timeout empties the sets. */
struct sets {
    fd_set *in[3], copies[3];
};

static void keep(struct sets *sets, int count, fd_set *a, fd_set *b, fd_set *c)
{
    fd_set *in[] = {a, b, c};
    for (int i = 0; i < 3; i++) {
        sets->in[i] = count <= FD_SETSIZE ? in[i] : NULL; /* larger ones are left as they are */
        if (sets->in[i])
            memcpy(&sets->copies[i], in[i], sizeof(fd_set));
    }
}

static bool again(const struct sets *sets, int64_t left)
{
    for (int i = 0; left && i < 3; i++)
        if (sets->in[i])
            memcpy(sets->in[i], &sets->copies[i], sizeof(fd_set));
    return left;
}

int pselect(int count, fd_set *restrict reading, fd_set *restrict writing, fd_set *restrict other,
            const struct timespec *restrict timeout, const sigset_t *restrict mask)
{
    if (!is_time(timeout) || ns_of(timeout) == 0 || count > FD_SETSIZE)
        return NEXT(pselect)(count, reading, writing, other, timeout, mask);
    struct sets sets;
    struct wait wait = begin(length_of(timeout));
    struct timespec at = *timeout;
    int64_t left;
    for (keep(&sets, count, reading, writing, other);;) {
        int result = NEXT(pselect)(count, reading, writing, other, &at, mask);
        if (result != 0 || !again(&sets, left = left_of(&wait)))
            return result;
        at = timespec_of(left);
    }
}

/* Linux tells what was left of the time. */
int select(int count, fd_set *restrict reading, fd_set *restrict writing, fd_set *restrict other,
           struct timeval *restrict timeout)
{
    if (!timeout || timeout->tv_sec < 0 || timeout->tv_usec < 0 || timeout->tv_usec >= 1000000 || count > FD_SETSIZE ||
        (timeout->tv_sec == 0 && timeout->tv_usec == 0))
        return NEXT(select)(count, reading, writing, other, timeout);
    struct sets sets;
    struct timespec length = {.tv_sec = timeout->tv_sec, .tv_nsec = timeout->tv_usec * 1000};
    struct wait wait = begin(length_of(&length));
    int64_t left;
    for (keep(&sets, count, reading, writing, other);;) {
        int result = NEXT(select)(count, reading, writing, other, timeout);
        if (result != 0 || !again(&sets, left = left_of(&wait)))
            return result;
        *timeout = (struct timeval){.tv_sec = left / SECOND, .tv_usec = left % SECOND / 1000};
    }
}

int epoll_pwait(int epoll, struct epoll_event *events, int room, int timeout, const sigset_t *mask)
{
    if (timeout <= 0)
        return NEXT(epoll_pwait)(epoll, events, room, timeout, mask);
    return WAITING(timeout * 1000000LL, left, result_ == 0, NEXT(epoll_pwait)(epoll, events, room, as_ms(left), mask));
}

int epoll_wait(int epoll, struct epoll_event *events, int room, int timeout)
{
    if (timeout <= 0)
        return NEXT(epoll_wait)(epoll, events, room, timeout);
    return WAITING(timeout * 1000000LL, left, result_ == 0, NEXT(epoll_wait)(epoll, events, room, as_ms(left)));
}

int epoll_pwait2(int epoll, struct epoll_event *events, int room, const struct timespec *timeout,
                 const sigset_t *mask)
{
    if (!is_time(timeout) || ns_of(timeout) == 0)
        return NEXT(epoll_pwait2)(epoll, events, room, timeout, mask);
    struct timespec at;
    return WAITING(length_of(timeout), left, result_ == 0,
                   (at = timespec_of(left), NEXT(epoll_pwait2)(epoll, events, room, &at, mask)));
}

int sigtimedwait(const sigset_t *restrict set, siginfo_t *restrict info, const struct timespec *restrict timeout)
{
    if (!is_time(timeout) || ns_of(timeout) == 0)
        return NEXT(sigtimedwait)(set, info, timeout);
    struct timespec at;
    return WAITING(length_of(timeout), left, result_ == -1 && errno == EAGAIN,
                   (at = timespec_of(left), NEXT(sigtimedwait)(set, info, &at)));
}

/* ---- sleep ---- */

/* Sleep; an error number, and what is left of it then. */
static int sleep_for(int64_t length_ns, struct timespec *left_out)
{
    struct timespec at, left_by_kernel;
    struct wait wait = begin(length_ns);
    int64_t left = length_ns;
    do {
        at = timespec_of(left);
        int error = NEXT(clock_nanosleep)(CLOCK_MONOTONIC, 0, &at, &left_by_kernel);
        if (error) {
            if (error == EINTR && left_out) {
                left = wait.ends_ns - view_shown_ns(CLOCK_MONOTONIC);
                *left_out = view_pauses() == wait.pauses ? left_by_kernel : timespec_of(left);
            }
            return error;
        }
    } while ((left = left_of(&wait)));
    return 0;
}

int nanosleep(const struct timespec *length, struct timespec *left)
{
    if (!is_time(length))
        return NEXT(nanosleep)(length, left);
    int error = sleep_for(length_of(length), left);
    if (error)
        errno = error;
    return error ? -1 : 0;
}

int usleep(useconds_t us)
{
    struct timespec length = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000L};
    return nanosleep(&length, NULL);
}

unsigned sleep(unsigned seconds)
{
    struct timespec length = {.tv_sec = seconds}, left = {0};
    int before = errno;
    if (nanosleep(&length, &left) == 0) {
        errno = before;
        return 0;
    }
    return (unsigned)(left.tv_sec + (left.tv_nsec >= SECOND / 2));
}

/* ---- until a time ---- */

/* Turn a time of a clock that programs see into one of the real monotonic clock, where the two differ. `at` of
 * unnamed clocks (-1) is told by its size. */
static const struct timespec *until(clockid_t *clock, const struct timespec *at, struct timespec *room,
                                    struct wait *wait)
{
    if (*clock == -1)
        *clock = at->tv_sec > WALL_CLOCK ? CLOCK_REALTIME : CLOCK_MONOTONIC;
    *wait = (struct wait){view_pauses(), 0};
    bool known = *clock == CLOCK_REALTIME || view_stands(*clock);
    if (!known || !is_time(at) || at->tv_sec > INT64_MAX / SECOND / 4)
        return at;
    int64_t left_ns = ns_of(at) - view_shown_ns(*clock);
    *wait = begin(left_ns);
    if (!view_pauses() && !(*clock == CLOCK_REALTIME && view_mode()))
        return at;
    *clock = CLOCK_MONOTONIC;
    *room = timespec_of(view_real_ns(CLOCK_MONOTONIC) + left_ns);
    return room;
}

/* The same for what is left of it. */
static const struct timespec *until_left(clockid_t *clock, int64_t left_ns, struct timespec *room)
{
    *clock = CLOCK_MONOTONIC;
    *room = timespec_of(view_real_ns(CLOCK_MONOTONIC) + left_ns);
    return room;
}

/* Its caller looks whether what it waits for is there: woken early, it waits again. */
int pthread_cond_clockwait(pthread_cond_t *cond, pthread_mutex_t *mutex, clockid_t clock,
                           const struct timespec *at)
{
    struct timespec room;
    struct wait wait;
    at = until(&clock, at, &room, &wait);
    int error = NEXT(pthread_cond_clockwait)(cond, mutex, clock, at);
    return error == ETIMEDOUT && left_of(&wait) ? 0 : error;
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
    struct wait wait;
    int64_t left;
    at = until(&clock, at, &room, &wait);
    for (;;) {
        int error = NEXT(pthread_mutex_clocklock)(mutex, clock, at);
        if (error != ETIMEDOUT || !(left = left_of(&wait)))
            return error;
        at = until_left(&clock, left, &room);
    }
}

int pthread_mutex_timedlock(pthread_mutex_t *restrict mutex, const struct timespec *restrict at)
{
    return pthread_mutex_clocklock(mutex, CLOCK_REALTIME, at);
}

int sem_clockwait(sem_t *sem, clockid_t clock, const struct timespec *at)
{
    struct timespec room;
    struct wait wait;
    int64_t left;
    at = until(&clock, at, &room, &wait);
    for (;;) {
        int result = NEXT(sem_clockwait)(sem, clock, at);
        if (result == 0 || errno != ETIMEDOUT || !(left = left_of(&wait)))
            return result;
        at = until_left(&clock, left, &room);
    }
}

int sem_timedwait(sem_t *restrict sem, const struct timespec *restrict at)
{
    return sem_clockwait(sem, CLOCK_REALTIME, at);
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *at, struct timespec *left)
{
    bool known = clock == CLOCK_REALTIME || view_stands(clock);
    if (!known || !is_time(at))
        return NEXT(clock_nanosleep)(clock, flags, at, left);
    if (!(flags & TIMER_ABSTIME))
        return sleep_for(length_of(at), left);
    struct timespec room;
    struct wait wait;
    int64_t more;
    at = until(&clock, at, &room, &wait);
    for (;;) {
        int error = NEXT(clock_nanosleep)(clock, flags, at, left);
        if (error || !(more = left_of(&wait)))
            return error;
        at = until_left(&clock, more, &room);
    }
}

/* ---- futexes that programs wait for by themselves: GLib, VLC, Chromium ---- */

#if defined(__x86_64__)
#define FUTEX_COMMAND(op) ((op) & 127)
#define FUTEX_WAIT 0
#define FUTEX_WAIT_BITSET 9
#define FUTEX_CLOCK_REALTIME 256

long view_plain_syscall(long number, ...) __attribute__((visibility("hidden")));

/* Woken early, as by a wake-up that was for another one. */
__attribute__((used, visibility("hidden"))) long view_futex(int *word, int op, int value, const struct timespec *at,
                                                            void *other, long bits)
{
    int command = FUTEX_COMMAND(op);
    if ((command != FUTEX_WAIT && command != FUTEX_WAIT_BITSET) || !is_time(at))
        return view_plain_syscall(SYS_futex, word, op, value, at, other, bits);
    struct timespec room;
    struct wait wait;
    if (command == FUTEX_WAIT) {
        wait = begin(length_of(at));
    } else {
        clockid_t clock = op & FUTEX_CLOCK_REALTIME ? CLOCK_REALTIME : CLOCK_MONOTONIC;
        at = until(&clock, at, &room, &wait);
        if (clock == CLOCK_MONOTONIC)
            op &= ~FUTEX_CLOCK_REALTIME;
    }
    long result = view_plain_syscall(SYS_futex, word, op, value, at, other, bits);
    return result == -1 && errno == ETIMEDOUT && left_of(&wait) ? 0 : result;
}

/* In assembler, since some calls return twice. */
__asm__(".text\n"
        ".globl syscall\n.type syscall,@function\n"
        "syscall:\n"
        "cmpq $202, %rdi\n" /* SYS_futex */
        "jne view_plain_syscall\n"
        "movq %rsi, %rdi\nmovq %rdx, %rsi\nmovq %rcx, %rdx\nmovq %r8, %rcx\nmovq %r9, %r8\nmovq 8(%rsp), %r9\n"
        "jmp view_futex\n"
        ".size syscall,.-syscall\n"
        ".hidden view_plain_syscall\n.globl view_plain_syscall\n.type view_plain_syscall,@function\n"
        "view_plain_syscall:\n"
        "movq %rdi, %rax\nmovq %rsi, %rdi\nmovq %rdx, %rsi\nmovq %rcx, %rdx\nmovq %r8, %r10\nmovq %r9, %r8\n"
        "movq 8(%rsp), %r9\n"
        "syscall\n"
        "cmpq $-4095, %rax\n"
        "jae 1f\n"
        "ret\n"
        "1: negl %eax\n"
        "pushq %rax\n"
        "call __errno_location@PLT\n"
        "popq %rcx\n"
        "movl %ecx, (%rax)\n"
        "movq $-1, %rax\n"
        "ret\n"
        ".size view_plain_syscall,.-view_plain_syscall\n");
#endif

/* ---- timers ---- */

#define TIMERS 16

/* Timers that raise SIGALRM; the first is that of setitimer and alarm. */
static struct alarm {
    long timer;
    int64_t due_ns, interval_ns; /* by the desktop's monotonic clock; due 0: none */
} alarms[TIMERS];
static struct sigaction handler; /* the program's */

static void remember(struct alarm *alarm, int64_t length_ns, int64_t interval_ns)
{
    alarm->interval_ns = interval_ns;
    alarm->due_ns = length_ns ? begin(length_ns).ends_ns : 0;
}

static struct alarm *alarm_of(const siginfo_t *info)
{
    if (info->si_code == SI_KERNEL)
        return &alarms[0];
    for (int i = 1; info->si_code == SI_TIMER && i < TIMERS; i++)
        if (alarms[i].due_ns && alarms[i].timer == info->si_timerid)
            return &alarms[i];
    return NULL;
}

/* Start a timer that is not due; whether it was so. */
static bool is_early(struct alarm *alarm)
{
    if (!alarm || !alarm->due_ns || view_pauses() == 0)
        return false;
    int64_t left_ns = alarm->due_ns - view_shown_ns(CLOCK_MONOTONIC);
    if (left_ns < LEAST_NS)
        return false;
    struct timespec left = timespec_of(left_ns), interval = timespec_of(alarm->interval_ns);
    if (alarm == &alarms[0]) {
        struct itimerval when = {{interval.tv_sec, interval.tv_nsec / 1000}, {left.tv_sec, left.tv_nsec / 1000}};
        syscall(SYS_setitimer, ITIMER_REAL, &when, NULL);
    } else {
        struct itimerspec when = {interval, left};
        syscall(SYS_timer_settime, alarm->timer, 0, &when, NULL);
    }
    return true;
}

static void on_alarm(int number, siginfo_t *info, void *context)
{
    int before = errno;
    struct alarm *alarm = alarm_of(info);
    bool early = is_early(alarm);
    if (alarm && !early)
        alarm->due_ns = alarm->interval_ns ? begin(alarm->interval_ns).ends_ns : 0;
    errno = before;
    if (early)
        return;
    if (handler.sa_flags & SA_SIGINFO)
        handler.sa_sigaction(number, info, context);
    else
        handler.sa_handler(number);
}

int sigaction(int number, const struct sigaction *restrict act, struct sigaction *restrict before)
{
    if (number != SIGALRM)
        return NEXT(sigaction)(number, act, before);
    struct sigaction ours, was = handler, now;
    bool wrap = act && !(act->sa_flags & SA_RESETHAND) && act->sa_handler != SIG_DFL && act->sa_handler != SIG_IGN;
    if (wrap) {
        ours = *act;
        ours.sa_sigaction = on_alarm;
        ours.sa_flags |= SA_SIGINFO;
        handler = *act; /* before a signal can come */
    }
    int result = NEXT(sigaction)(number, wrap ? &ours : act, &now);
    if (result == 0 && before)
        *before = now.sa_flags & SA_SIGINFO && now.sa_sigaction == on_alarm ? was : now;
    return result;
}

sighandler_t signal(int number, sighandler_t given)
{
    if (number != SIGALRM)
        return NEXT(signal)(number, given);
    struct sigaction act = {.sa_handler = given, .sa_flags = SA_RESTART}, before;
    sigemptyset(&act.sa_mask);
    sigaddset(&act.sa_mask, number);
    return sigaction(number, &act, &before) == 0 ? before.sa_handler : SIG_ERR;
}

int setitimer(__itimer_which_t which, const struct itimerval *restrict when, struct itimerval *restrict before)
{
    int result = NEXT(setitimer)(which, when, before);
    if (result == 0 && which == ITIMER_REAL && when)
        remember(&alarms[0], when->it_value.tv_sec * SECOND + when->it_value.tv_usec * 1000,
                 when->it_interval.tv_sec * SECOND + when->it_interval.tv_usec * 1000);
    return result;
}

unsigned alarm(unsigned seconds)
{
    unsigned left = NEXT(alarm)(seconds);
    remember(&alarms[0], seconds * SECOND, 0);
    return left;
}

/* A timer was made with its clock: the time stays one of that clock, the real one. */
static const struct itimerspec *fires(bool absolute, const struct itimerspec *when, struct itimerspec *room)
{
    if (!absolute || !is_time(&when->it_value) || ns_of(&when->it_value) == 0)
        return when;
    clockid_t clock = when->it_value.tv_sec > WALL_CLOCK ? CLOCK_REALTIME : CLOCK_MONOTONIC;
    if (!view_pauses() && !(clock == CLOCK_REALTIME && view_mode()))
        return when;
    *room = *when;
    int64_t left_ns = ns_of(&when->it_value) - view_shown_ns(clock);
    room->it_value = timespec_of(view_real_ns(clock) + left_ns);
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
    int result = NEXT(timer_settime)(timer, flags, fires(flags & TIMER_ABSTIME, when, &room), before);
    long id = (long)timer;
    if (result || id < 0) /* a timer that starts a thread */
        return result;
    struct alarm *slot = NULL;
    for (int i = TIMERS - 1; i > 0; i--)
        if (alarms[i].timer == id || !alarms[i].due_ns)
            if (!slot || alarms[i].timer == id)
                slot = &alarms[i];
    if (slot) {
        slot->timer = id;
        remember(slot, flags & TIMER_ABSTIME ? 0 : length_of(&when->it_value), length_of(&when->it_interval));
    }
    return result;
}
