/* Who works for the screen, and is it at work: from /proc, without any privilege for what is ours.
 *
 * What counts: the X server, the window manager, every X client with its descendants, and every process
 * that came after the base line and has our DISPLAY (a launched application that has no window yet). What does
 * not: ourselves, the panel (its clock) unless the pointer is on it or the rule counts it, and whoever burns the processor for
 * long without end.
 */
#define _GNU_SOURCE
#include "og.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define STARTING_NS 20000000000u /* after this time a launched program has started, or never will */

uint64_t og_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static ssize_t read_path(const char *path, char *buffer, size_t size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    ssize_t n = read(fd, buffer, size - 1);
    close(fd);
    if (n < 0) return -1;
    buffer[n] = 0;
    return n;
}

static ssize_t read_again(int fd, char *buffer, size_t size) {
    ssize_t n = pread(fd, buffer, size - 1, 0);
    buffer[n > 0 ? n : 0] = 0;
    return n;
}

/* CPU time of a process that ran or runs; false when it is gone. */
static bool cpu_time(int pid, uint64_t *ns) {
    struct timespec t;
    clockid_t clock = (clockid_t)((~(unsigned)pid << 3) | 2u); /* what clock_getcpuclockid makes */
    if (clock_gettime(clock, &t)) return false;
    *ns = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
    return true;
}

void og_procs_init(og_procs *p, const char *display) {
    memset(p, 0, sizeof *p);
    p->own_pid = getpid();
    p->fd_loadavg = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
    p->burner_s = 10;
    p->burner_share = 0.1;
    snprintf(p->display, sizeof p->display, "%s", display ? display : "");
    char *dot = strrchr(p->display, '.');
    char *colon = strrchr(p->display, ':');
    if (dot && colon && dot > colon) *dot = 0;
}

static void close_thread(const og_thread *t) {
    if (t->fd_sched >= 0) close(t->fd_sched);
    if (t->fd_syscall >= 0) close(t->fd_syscall);
}

static void forget_threads(og_procs *p) {
    for (int i = 0; i < p->thread_count; i++) close_thread(&p->threads[i]);
    p->thread_count = 0;
}

void og_procs_close(og_procs *p) {
    forget_threads(p);
    if (p->fd_loadavg >= 0) close(p->fd_loadavg);
    p->fd_loadavg = -1;
}

static int lower_bound(const og_procs *p, int pid) {
    int low = 0, high = p->count;
    while (low < high) {
        int middle = (low + high) / 2;
        if (p->list[middle].pid < pid) low = middle + 1;
        else high = middle;
    }
    return low;
}

static og_proc *find(og_procs *p, int pid) {
    int i = lower_bound(p, pid);
    return i < p->count && p->list[i].pid == pid ? &p->list[i] : NULL;
}

const og_proc *og_procs_find(const og_procs *p, int pid) {
    int i = lower_bound(p, pid);
    return i < p->count && p->list[i].pid == pid ? &p->list[i] : NULL;
}

/* The newest process or thread id, the last word of /proc/loadavg: nothing was created while it stays. */
static long newest_pid(const og_procs *p) {
    char text[128];
    if (p->fd_loadavg < 0 || read_again(p->fd_loadavg, text, sizeof text) <= 0) return -1;
    const char *word = strrchr(text, ' ');
    return word ? strtol(word, NULL, 10) : -1;
}

bool og_procs_stale(og_procs *p) {
    long newest = newest_pid(p);
    return newest < 0 || newest != p->last_pid || p->clients_changed;
}

/* comm and parent from /proc/PID/stat */
static bool read_identity(og_proc *proc) {
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", proc->pid);
    if (read_path(path, text, sizeof text) <= 0) return false;
    char *open_paren = strchr(text, '('), *close_paren = strrchr(text, ')');
    if (!open_paren || !close_paren || close_paren[1] != ' ' || !close_paren[2]) return false;
    *close_paren = 0;
    snprintf(proc->comm, sizeof proc->comm, "%s", open_paren + 1);
    proc->ppid = (int)strtol(close_paren + 4, NULL, 10);
    return true;
}

static bool has_tty(int pid) {
    char path[64], text[1024], state;
    int parent, group, session, tty = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    if (read_path(path, text, sizeof text) <= 0) return false;
    const char *close_paren = strrchr(text, ')');
    if (!close_paren || sscanf(close_paren + 1, " %c %d %d %d %d", &state, &parent, &group, &session, &tty) != 5)
        return false;
    return tty != 0;
}

bool og_procs_has_terminal(const og_procs *p, int pid) {
    for (int i = 0; i < p->count; i++) {
        const og_proc *at = &p->list[i];
        for (int depth = 0; at && depth < 32 && at->pid > 1; depth++) {
            if (at->ppid == pid && has_tty(p->list[i].pid)) return true;
            at = og_procs_find(p, at->ppid);
        }
    }
    return false;
}

bool og_runs_enter_later(int pid) {
    char path[64], text[64];
    snprintf(path, sizeof path, "/proc/%d/comm", pid);
    return read_path(path, text, sizeof text) > 0 && !strncmp(text, "soffice.bin\n", 12);
}

/* Whether a process has our DISPLAY in its environment. */
static bool has_our_display(const og_procs *p, int pid) {
    char path[64], text[16384];
    snprintf(path, sizeof path, "/proc/%d/environ", pid);
    ssize_t n = read_path(path, text, sizeof text);
    size_t length = strlen(p->display);
    for (ssize_t i = 0; i < n; i += (ssize_t)strlen(text + i) + 1) {
        if (strncmp(text + i, "DISPLAY=", 8)) continue;
        const char *value = text + i + 8;
        return !strncmp(value, p->display, length) && (value[length] == 0 || value[length] == '.');
    }
    return false;
}

static bool is_client(const og_procs *p, int pid) {
    for (int i = 0; i < p->client_count; i++)
        if (p->clients[i].pid == pid) return true;
    return false;
}

static bool has_window(const og_procs *p, int pid) {
    for (int i = 0; i < p->window_pid_count; i++)
        if (p->window_pids[i] == pid) return true;
    return false;
}

static bool is_panel(const og_procs *p, int pid) {
    for (int i = 0; i < p->panel_count; i++)
        if (p->panel_pids[i] == pid) return true;
    return false;
}

static int group_for(og_procs *p, int pid) {
    for (int g = OG_GROUP_FIRST_APP; g < p->group_count; g++)
        if (p->group_pid[g] == pid) return g;
    /* a group whose processes are all gone is given away */
    for (int g = OG_GROUP_FIRST_APP; g < p->group_count; g++) {
        bool used = false;
        for (int i = 0; i < p->count && !used; i++) used = p->list[i].group == g;
        if (!used) {
            p->group_pid[g] = pid;
            p->group_dead_ns[g] = 0;
            return g;
        }
    }
    if (p->group_count >= OG_MAX_GROUPS) return OG_MAX_GROUPS - 1;
    p->group_pid[p->group_count] = pid;
    p->group_dead_ns[p->group_count] = 0;
    return p->group_count++;
}

/* Group of a process by itself or the nearest ancestor that has one. */
static int find_group(og_procs *p, const og_proc *proc) {
    int pid = proc->pid;
    for (int depth = 0; depth < 32 && pid > 1; depth++) {
        const og_proc *at = find(p, pid);
        if (!at || pid == p->own_pid) return -1;
        if (is_panel(p, pid)) return depth ? -1 : OG_GROUP_PANEL;
        if (pid == p->server_pid) return depth ? -1 : OG_GROUP_SERVER;
        if (pid == p->wm_pid) return OG_GROUP_WM;
        if (is_client(p, pid)) return group_for(p, pid);
        if (depth && at->group >= OG_GROUP_FIRST_APP) return at->group;
        pid = at->ppid;
    }
    return -1;
}

static bool was_launched(const og_procs *p, const og_proc *proc) {
    for (int depth = 0; proc && depth < 32; depth++) {
        if (proc->ppid == (p->starter_pid ? p->starter_pid : p->own_pid)) return true;
        proc = og_procs_find(p, proc->ppid);
    }
    return false;
}

static void classify(og_procs *p) {
    for (int i = 0; i < p->count; i++) {
        og_proc *proc = &p->list[i];
        if (proc->pid == p->own_pid) continue;
        bool own_group = proc->pid == p->server_pid || proc->pid == p->wm_pid || is_client(p, proc->pid);
        if (proc->group >= 0 && !own_group) continue; /* stays where it was, also when its parent went */
        int group = find_group(p, proc);
        if (group < 0 && proc->fresh && has_our_display(p, proc->pid)) group = group_for(p, proc->pid);
        if (proc->fresh && was_launched(p, proc)) proc->launched_ns = og_now();
        proc->fresh = false;
        if (group != proc->group && group >= 0) {
            uint64_t ns = 0;
            cpu_time(proc->pid, &ns);
            bool newcomer = proc->group < 0 && p->base_line;
            proc->cpu_ns = ns;
            proc->base_ns = newcomer && proc->base_ns == 0 ? 0 : ns;
            proc->rate_ns = ns;
            proc->rate_at_ns = og_now();
        }
        if (group >= 0) proc->group = group;
    }
}

static int compare_pids(const void *a, const void *b) {
    return ((const og_proc *)a)->pid - ((const og_proc *)b)->pid;
}

void og_procs_scan(og_procs *p) {
    long newest = newest_pid(p);
    DIR *dir = opendir("/proc");
    if (!dir) return;
    for (int i = 0; i < p->count; i++) p->list[i].seen = false;
    int known = p->count;
    struct dirent *entry;
    while ((entry = readdir(dir))) {
        if (!isdigit((unsigned char)entry->d_name[0])) continue;
        int pid = atoi(entry->d_name);
        og_proc *proc = bsearch(&(og_proc){.pid = pid}, p->list, (size_t)known, sizeof *p->list, compare_pids);
        if (proc) {
            proc->seen = true;
            continue;
        }
        if (p->count >= OG_MAX_PROCS) break;
        proc = &p->list[p->count];
        *proc = (og_proc){.pid = pid, .group = -1, .seen = true, .fresh = p->base_line};
        if (read_identity(proc)) p->count++;
    }
    closedir(dir);
    int kept = 0;
    for (int i = 0; i < p->count; i++) {
        if (p->list[i].seen) p->list[kept++] = p->list[i];
        else if (p->list[i].group >= 0) p->group_dead_ns[p->list[i].group] += p->list[i].cpu_ns - p->list[i].base_ns;
    }
    p->count = kept;
    qsort(p->list, (size_t)p->count, sizeof *p->list, compare_pids);
    if (p->group_count < OG_GROUP_FIRST_APP) p->group_count = OG_GROUP_FIRST_APP;
    classify(p);
    p->last_pid = newest;
    p->clients_changed = false;
    p->base_line = true;
}

void og_procs_sample(og_procs *p) {
    for (int g = 0; g < p->group_count; g++) p->group_cpu_ns[g] = p->group_dead_ns[g];
    for (int i = 0; i < p->count; i++) {
        og_proc *proc = &p->list[i];
        if (proc->group < 0) continue;
        if (!proc->dead && !cpu_time(proc->pid, &proc->cpu_ns)) proc->dead = true;
        if (!proc->burner) p->group_cpu_ns[proc->group] += proc->cpu_ns - proc->base_ns;
    }
}

void og_procs_begin(og_procs *p, uint64_t now) {
    forget_threads(p);
    memset(p->group_dead_ns, 0, sizeof p->group_dead_ns);
    og_procs_sample(p);
    for (int i = 0; i < p->count; i++) {
        p->list[i].base_ns = p->list[i].cpu_ns;
        if (p->list[i].group >= 0 && !p->list[i].dead) {
            /* comm changes with exec; of the few that count it is read again */
            og_proc fresh = p->list[i];
            char path[64], text[64];
            snprintf(path, sizeof path, "/proc/%d/comm", fresh.pid);
            if (read_path(path, text, sizeof text) > 0) {
                text[strcspn(text, "\n")] = 0;
                snprintf(p->list[i].comm, sizeof p->list[i].comm, "%.15s", text);
            }
        }
    }
    og_procs_find_burners(p, now);
    og_procs_sample(p);
}

/* Who has used more than burner_share of a processor for burner_s without a break. */
void og_procs_find_burners(og_procs *p, uint64_t now) {
    for (int i = 0; i < p->count; i++) {
        og_proc *proc = &p->list[i];
        if (proc->group < OG_GROUP_FIRST_APP) continue;
        uint64_t passed = now - proc->rate_at_ns;
        if (proc->rate_at_ns && passed < 200000000u) continue;
        double share = proc->rate_at_ns ? (double)(proc->cpu_ns - proc->rate_ns) / (double)passed : 0;
        if (share < p->burner_share) proc->burning_since_ns = 0;
        else if (!proc->burning_since_ns) proc->burning_since_ns = proc->rate_at_ns;
        proc->burner = proc->burning_since_ns && (double)(now - proc->burning_since_ns) > p->burner_s * 1e9;
        proc->rate_ns = proc->cpu_ns;
        proc->rate_at_ns = now;
    }
}

bool og_procs_any_burner(const og_procs *p) {
    for (int i = 0; i < p->count; i++)
        if (p->list[i].burner && p->list[i].group >= 0 && !p->list[i].dead) return true;
    return false;
}

/* ---- threads: by what timeout do they wait ---- */

static bool read_memory(int pid, uint64_t address, void *out, size_t n) {
    struct iovec local = {out, n}, remote = {(void *)(uintptr_t)address, n};
    return process_vm_readv(pid, &local, 1, &remote, 1, 0) == (ssize_t)n;
}

static double timespec_ms(const struct timespec *t) {
    return (double)t->tv_sec * 1e3 + (double)t->tv_nsec / 1e6;
}

static double clock_ms(clockid_t clock) {
    struct timespec t;
    if (clock_gettime(clock, &t)) return 0;
    return timespec_ms(&t);
}

static double left(double timeout_ms, double elapsed_ms) {
    return timeout_ms > elapsed_ms ? timeout_ms - elapsed_ms : 0.01;
}

/* Remaining milliseconds of a wait with a relative timespec at `address` (0: no timeout). */
static double left_of_timespec(int pid, uint64_t address, double elapsed_ms) {
    struct timespec t;
    if (!address) return OG_NEVER;
    if (!read_memory(pid, address, &t, sizeof t)) return OG_UNKNOWN;
    return left(timespec_ms(&t), elapsed_ms);
}

static double left_until(int pid, uint64_t address, clockid_t clock) {
    struct timespec t;
    if (!address) return OG_NEVER;
    if (!read_memory(pid, address, &t, sizeof t)) return OG_UNKNOWN;
    return left(timespec_ms(&t), clock_ms(clock));
}

static double left_of_milliseconds(uint64_t argument, double elapsed_ms) {
    int ms = (int)argument;
    return ms < 0 ? OG_NEVER : left(ms, elapsed_ms);
}

enum { FUTEX_COMMAND = 127, FUTEX_BITSET = 9, FUTEX_REALTIME = 256, TIMER_ABSOLUTE = 1 };

static double remaining(const og_thread *t, const uint64_t a[6], double elapsed_ms) {
    switch (t->nr) {
#ifdef SYS_poll
    case SYS_poll: return left_of_milliseconds(a[2], elapsed_ms);
#endif
#ifdef SYS_epoll_wait
    case SYS_epoll_wait:
#endif
    case SYS_epoll_pwait: return left_of_milliseconds(a[3], elapsed_ms);
#ifdef SYS_select
    case SYS_select: {
        struct timespec tv; /* a timeval has the same layout with microseconds */
        if (!a[4]) return OG_NEVER;
        if (!read_memory(t->pid, a[4], &tv, sizeof tv)) return OG_UNKNOWN;
        return left((double)tv.tv_sec * 1e3 + (double)tv.tv_nsec / 1e3, elapsed_ms);
    }
#endif
    case SYS_ppoll: return left_of_timespec(t->pid, a[2], elapsed_ms);
    case SYS_pselect6: return left_of_timespec(t->pid, a[4], elapsed_ms);
#ifdef SYS_epoll_pwait2
    case SYS_epoll_pwait2: return left_of_timespec(t->pid, a[3], elapsed_ms);
#endif
    case SYS_futex:
        if ((a[1] & FUTEX_COMMAND) == FUTEX_BITSET)
            return left_until(t->pid, a[3], (a[1] & FUTEX_REALTIME) ? CLOCK_REALTIME : CLOCK_MONOTONIC);
        return left_of_timespec(t->pid, a[3], elapsed_ms);
    case SYS_nanosleep: return left_of_timespec(t->pid, a[0], elapsed_ms);
    case SYS_clock_nanosleep:
        if (a[1] & TIMER_ABSOLUTE) return left_until(t->pid, a[2], (clockid_t)a[0]);
        return left_of_timespec(t->pid, a[2], elapsed_ms);
    default: return OG_NEVER;
    }
}

/* Whether a main thread waits for one descriptor: an answer. A main loop waits for several. */
static bool waits_for_one(long nr, const uint64_t a[6]) {
    switch (nr) {
#ifdef SYS_poll
    case SYS_poll:
#endif
    case SYS_ppoll: return a[1] == 1;
    case SYS_recvmsg: case SYS_recvfrom: return true;
    default: return false;
    }
}

static bool accepts_connections(int pid, int fd) {
    bool listens = false;
#if defined SYS_pidfd_open && defined SYS_pidfd_getfd
    int process = (int)syscall(SYS_pidfd_open, pid, 0);
    int copy = process < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, process, fd, 0);
    int on = 0;
    socklen_t size = sizeof on;
    listens = copy >= 0 && !getsockopt(copy, SOL_SOCKET, SO_ACCEPTCONN, &on, &size) && on;
    if (copy >= 0) close(copy);
    if (process >= 0) close(process);
#endif
    return listens;
}

/* Whether a main thread waits for an answer: at one descriptor where nobody else could come, or for a thread of
 * its own that does, which no main loop does without a timeout. */
static bool waits_for_answer(const og_thread *t, const uint64_t a[6]) {
    if (t->nr == SYS_futex) return t->remaining_ms == OG_NEVER;
    if (!waits_for_one(t->nr, a)) return false;
    struct pollfd one = {.fd = (int)a[0]};
    bool polls = t->nr != SYS_recvmsg && t->nr != SYS_recvfrom;
    if (polls && !read_memory(t->pid, a[0], &one, sizeof one)) return false;
    return !accepts_connections(t->pid, one.fd);
}

static void read_thread(const og_procs *p, og_thread *t, uint64_t now) {
    char text[256];
    uint64_t run = t->run_ns;
    t->reply_wait_ms = t->call_wait_ms = -1;
    if (t->fd_sched >= 0 && read_again(t->fd_sched, text, sizeof text) > 0) run = strtoull(text, NULL, 10);
    if (t->fd_syscall < 0 || read_again(t->fd_syscall, text, sizeof text) <= 0) {
        t->run_ns = run;
        t->remaining_ms = OG_UNKNOWN;
        return;
    }
    if (text[0] == 'r') {
        t->run_ns = run;
        t->entered_ns = now;
        t->nr = -1;
        t->remaining_ms = OG_RUNNING;
        return;
    }
    char *at = text;
    long nr = strtol(at, &at, 10);
    uint64_t arguments[6];
    for (int i = 0; i < 6; i++) arguments[i] = strtoull(at, &at, 16);
    if (run != t->run_ns || nr != t->nr) {
        t->entered_ns = now;
        t->run_ns = run;
        t->nr = nr;
    }
    t->waited_ms = (double)(now - t->entered_ns) / 1e6;
    t->remaining_ms = remaining(t, arguments, t->waited_ms);
    if (t->is_client_main && waits_for_one(nr, arguments)) t->reply_wait_ms = t->waited_ms;
    /* one that has its window waits for its user: plain Xlib programs do that at one descriptor */
    if (t->is_starting && !has_window(p, t->pid) && waits_for_answer(t, arguments)) t->call_wait_ms = t->waited_ms;
}

static void follow(og_procs *p, int pid, int tid, bool is_starting) {
    for (int i = 0; i < p->thread_count; i++)
        if (p->threads[i].tid == tid) return;
    if (p->thread_count >= OG_MAX_THREADS) return;
    char path[80];
    og_thread *t = &p->threads[p->thread_count++];
    *t = (og_thread){.pid = pid, .tid = tid, .nr = -2, .remaining_ms = OG_UNKNOWN, .is_starting = is_starting};
    t->reply_wait_ms = t->call_wait_ms = -1;
    t->is_client_main = pid == tid && is_client(p, pid);
    snprintf(path, sizeof path, "/proc/%d/task/%d/schedstat", pid, tid);
    t->fd_sched = open(path, O_RDONLY | O_CLOEXEC);
    snprintf(path, sizeof path, "/proc/%d/task/%d/syscall", pid, tid);
    t->fd_syscall = open(path, O_RDONLY | O_CLOEXEC);
}

static void follow_named(og_procs *p, int pid) {
    char path[80], text[64];
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR *dir = opendir(path);
    if (!dir) return;
    struct dirent *entry;
    while ((entry = readdir(dir))) {
        if (!isdigit((unsigned char)entry->d_name[0]) || atoi(entry->d_name) == pid) continue;
        snprintf(path, sizeof path, "/proc/%d/task/%.12s/comm", pid, entry->d_name);
        if (read_path(path, text, sizeof text) <= 0) continue;
        text[strcspn(text, "\n")] = 0;
        for (int i = 0; i < p->thread_name_count; i++)
            if (!strcmp(text, p->thread_names[i])) follow(p, pid, atoi(entry->d_name), false);
    }
    closedir(dir);
}

/* Give the places of ended processes to others, which may also have their ids. */
static void forget_ended(og_procs *p) {
    int kept = 0;
    for (int i = 0; i < p->thread_count; i++) {
        const og_proc *proc = og_procs_find(p, p->threads[i].pid);
        if (proc && !proc->dead) p->threads[kept++] = p->threads[i];
        else close_thread(&p->threads[i]);
    }
    p->thread_count = kept;
}

/* Read the threads of every application that has worked since the action began. */
void og_procs_follow_threads(og_procs *p, uint64_t now) {
    forget_ended(p);
    for (int i = 0; i < p->count; i++) {
        og_proc *proc = &p->list[i];
        if (proc->group < OG_GROUP_FIRST_APP || proc->dead || proc->burner) continue;
        bool starting = p->follow_starting && proc->launched_ns && now - proc->launched_ns < STARTING_NS;
        if (proc->cpu_ns == proc->base_ns && !starting) continue;
        bool known = false;
        for (int j = 0; j < p->thread_count && !known; j++) known = p->threads[j].tid == proc->pid;
        if (known) continue;
        follow(p, proc->pid, proc->pid, starting);
        if (p->thread_name_count) follow_named(p, proc->pid);
    }
    for (int j = 0; j < p->thread_count; j++) read_thread(p, &p->threads[j], now);
}

/* ---- at work now? ---- */

static char state_of(int pid, int tid) {
    char path[80], text[512];
    snprintf(path, sizeof path, "/proc/%d/task/%d/stat", pid, tid);
    if (read_path(path, text, sizeof text) <= 0) return 0;
    const char *close_paren = strrchr(text, ')');
    return close_paren && close_paren[1] == ' ' ? close_paren[2] : 0;
}

/* A wait in one of these is never a wait for the disk, unless a page that the call needs is in swap. */
static bool is_sleep(long nr) {
    switch (nr) {
#ifdef SYS_poll
    case SYS_poll:
#endif
#ifdef SYS_epoll_wait
    case SYS_epoll_wait:
#endif
#ifdef SYS_select
    case SYS_select:
#endif
    case SYS_epoll_pwait: case SYS_ppoll: case SYS_pselect6: case SYS_futex: case SYS_nanosleep:
    case SYS_clock_nanosleep: case SYS_recvmsg: case SYS_recvfrom: case SYS_wait4: case SYS_waitid:
    case SYS_accept4: case SYS_rt_sigtimedwait: case SYS_rt_sigsuspend: return true;
    default: return false;
    }
}

static bool thread_is_busy(int pid, int tid) {
    char path[80], text[256];
    snprintf(path, sizeof path, "/proc/%d/task/%d/syscall", pid, tid);
    bool known = read_path(path, text, sizeof text) > 0;
    if (known && text[0] == 'r') return true;
    char state = state_of(pid, tid);
    return state == 'D' || (state == 'R' && !(known && is_sleep(strtol(text, NULL, 10))));
}

static bool any_thread_is_busy(int pid) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR *dir = opendir(path);
    if (!dir) return false;
    bool busy = false;
    struct dirent *entry;
    while (!busy && (entry = readdir(dir)))
        if (isdigit((unsigned char)entry->d_name[0])) busy = thread_is_busy(pid, atoi(entry->d_name));
    closedir(dir);
    return busy;
}

bool og_group_counts(const og_procs *p, int group) {
    return group >= 0 && (group != OG_GROUP_PANEL || p->panel_counts);
}

/* All threads of those who have worked since the action began, the main threads of the others. */
bool og_procs_any_running(og_procs *p) {
    for (int i = 0; i < p->count; i++) {
        const og_proc *proc = &p->list[i];
        if (!og_group_counts(p, proc->group) || proc->dead || proc->burner) continue;
        if (proc->cpu_ns == proc->base_ns) {
            if (thread_is_busy(proc->pid, proc->pid)) return true;
        } else if (any_thread_is_busy(proc->pid)) {
            return true;
        }
    }
    return false;
}
