/* osgym-session: keeps what runs in a desktop apart from what looks after it, in a container.
 *
 * The guest agent, its helpers and the X server run in the container's own PID and mount namespace. Everything that
 * a user of the desktop can start, with root by sudo too, runs in namespaces below: there no process of the upper
 * ones has a number, and nothing leads to one (no /proc that shows it, no descriptor, no mount). The session bus
 * has a PID namespace between the two.
 *
 * Started once by the container's first process, as root, with the command line of the harness, and with
 * OSGYM_SESSION_GROUPS, the number of descriptors from 4 on that lead into control groups. One process, the
 * server, makes the namespaces, starts the session bus and the desktop's programs, and then starts what the guest agent
 * asks for over a socket that the upper namespace alone can see. The other starts the harness when all that is ready,
 * and ends with its exit status. When the session is lost (the server, the bus or the first process of the session's
 * namespace has ended) it ends with EXIT_SESSION_LOST.
 *
 * For each start a process of the upper namespace that holds nothing but what the program gets, the maker, makes the
 * program's process in the lower one, since root there may look into a process, and take its descriptors, from its
 * first moment on. Nothing is loaded after the start: root in the desktop may have changed every file.
 *
 * Process groups do not end with a namespace: whatever runs in the session must be in a session of its own (setsid),
 * or a signal to its group reaches the harness.
 *
 * Protocol, over SOCK_SEQPACKET, one request and one answer at a time:
 *   START, with four descriptors: a file with NUL-terminated texts (folder, arguments, environment), and the three
 *          standard ones. Answer: error number, and the PID as the upper namespace counts (or NO_FOLDER, or NOT_MADE
 *          when not even a process for the program could be made).
 *   REAP, with a PID. Answer: error number and wait status. Until then the PID is no other process's.
 *   FORGET, with a PID that nobody asks for again.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define HARNESS "/run/osgym/harness" /* memory that the upper namespace alone sees */
#define SOCKET HARNESS "/session.sock"
#define FRAMES HARNESS "/fb"
#define DISPLAY_IS_UP HARNESS "/up"
#define BUS "/usr/lib/osgym/bus"
#define PROGRAMS "/usr/lib/osgym/programs"
#define MAX_TEXTS_BYTES (16u << 20)
#define MAX_TEXTS 65536
#define MAX_GROUPS 64
#define EXEC_S 5 /* a program that has not begun by then counts as started */
#define EXIT_SESSION_LOST 5
#define FIRST_GROUP 4 /* after the three standard descriptors and the guest agent's socket */
#define MAX_GROUPS_GIVEN 8
#define FIRST_WATCHED 100 /* the bus's descriptor that tells of the end of the session's first process */
/* Descriptors in flight between processes count for each user, against the limit of whoever sends one more: the guest
 * agent, which is the same user, can open so many more than programs. */
#define AGENTS_OWN_FDS 256
#define GUARDED (MS_NOSUID | MS_NODEV | MS_NOEXEC)

enum { START = 1, REAP = 2, FORGET = 3 };
enum { NO_FOLDER = -1, NOT_MADE = -2 };
enum { TEXTS, STDIN, STDOUT, STDERR, FDS };

struct request {
    uint32_t op, arguments, variables; /* counts of texts */
    int32_t pid;
};
struct answer {
    int32_t error, value;
};
struct pids {
    pid_t *all;
    size_t count, room;
};

static uid_t user;
static gid_t user_group, groups[MAX_GROUPS];
static int group_count = MAX_GROUPS;
static int session_pids, bus_watched, first_watched;
/* What a maker found out: in memory that the program's process does not get, since root below may write to all of it. */
static struct answer *made;
static struct pids started, forgotten; /* by the agent that is connected; what nobody asks for */
static int control_groups; /* descriptors from FIRST_GROUP on that move whoever writes to them into the session's */

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "osgym-session: %s: %s\n", what, strerror(errno));
    _exit(1);
}

/* ---- what a process is before it becomes a program ---- */

/* Its groups were looked up at the start: later, whoever has root in the desktop says where they are looked up. */
static void become_user(void)
{
    if (setgroups((size_t)group_count, groups) || setresgid(user_group, user_group, user_group) ||
        setresuid(user, user, user))
        die("credentials");
}

static void reset_signals(void)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (int number = 1; number < NSIG; number++)
        signal(number, SIG_DFL);
}

/* Put these three on 0, 1 and 2, and close all others but `keep`, which becomes 3 and closes on execve. */
static void arrange(const int standard[3], int keep)
{
    int above[3], kept = keep < 0 ? -1 : fcntl(keep, F_DUPFD, 16);
    for (int i = 0; i < 3; i++)
        if ((above[i] = fcntl(standard[i], F_DUPFD, 16)) < 0)
            die("descriptors");
    for (int i = 0; i < 3; i++)
        dup2(above[i], i);
    if (kept >= 0)
        dup3(kept, 3, O_CLOEXEC);
    if (syscall(SYS_close_range, kept >= 0 ? 4 : 3, ~0u, 0))
        die("close_range");
}

/* Variables of the harness are nobody else's, and neither is the memory that they were in. */
static void wipe_environment(void)
{
    char **to = environ;
    for (char **from = environ; *from; from++)
        if (strncmp(*from, "OSGYM_", 6) && strncmp(*from, "LISTEN_", 7))
            *to++ = *from;
        else
            memset(*from, 0, strlen(*from));
    *to = NULL;
}

/* Become one of the desktop's own programs. */
static void become(const char *path)
{
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    arrange((int[]){null, 1, 2}, -1);
    setsid();
    become_user();
    reset_signals();
    execl(path, path, (char *)NULL);
    die(path);
}

/* ---- the namespaces ---- */

static void make_folders(void)
{
    char options[96];
    snprintf(options, sizeof options, "mode=700,uid=%u,gid=%u,size=128m", user, user_group);
    if (mount("harness", HARNESS, "tmpfs", GUARDED, options))
        die(HARNESS);
    if (mkdir(FRAMES, 0700) || chown(FRAMES, user, user_group) || mkfifo(DISPLAY_IS_UP, 0600) ||
        chown(DISPLAY_IS_UP, user, user_group))
        die(FRAMES);
}

static int listen_at(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) || chown(path, user, user_group) ||
        listen(fd, 4))
        die(path);
    return fd;
}

static void write_byte(int fd)
{
    if (write(fd, "", 1) != 1)
        die("write");
}

static void read_byte(int fd)
{
    char byte;
    if (read(fd, &byte, 1) != 1)
        _exit(EXIT_SESSION_LOST); /* whoever should have written has said why it did not */
}

/* First process of the session's PID namespace: mounts a /proc of its own, then reaps orphans. */
static void be_first(int ready)
{
    static const char *const fresh = "/run/osgym/proc";
    prctl(PR_SET_NAME, "osgym-first");
    /* The new one first: the kernel lets a namespace have a /proc only while it sees one. */
    if (mkdir(fresh, 0755) || mount("proc", fresh, "proc", GUARDED, NULL) || umount2("/proc", MNT_DETACH) ||
        mount(fresh, "/proc", NULL, MS_MOVE, NULL) || rmdir(fresh))
        die("/proc");
    write_byte(ready);
    arrange((int[]){0, 1, 2}, -1);
    setsid(); /* root in the session can have it signal its group */
    clearenv();
    sigset_t children;
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    sigprocmask(SIG_BLOCK, &children, NULL);
    for (;;) {
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
        sigwaitinfo(&children, NULL);
    }
}

/* First process of the bus's PID namespace: makes the session's below it and becomes the session bus. Nothing of the
 * session can stop it, and what it starts runs in the session, as all services that users bring along have to. */
static void be_bus(int ready, int go)
{
    int below[2];
    if (unshare(CLONE_NEWPID) || pipe2(below, O_CLOEXEC))
        die("PID namespace of the session");
    pid_t first = fork();
    if (first < 0)
        die("fork");
    if (first == 0) {
        close(ready);
        close(below[0]);
        read_byte(go);
        be_first(below[1]);
    }
    close(below[1]);
    int watched = (int)syscall(SYS_pidfd_open, first, 0);
    if (watched < 0 || dup3(watched, FIRST_WATCHED, O_CLOEXEC) < 0)
        die("first process of the session");
    write_byte(ready);
    read_byte(below[0]);
    write_byte(ready);
    become(BUS);
}

/* Leave this process in the upper PID namespace and in the lower mount namespace, with the session's PID namespace
 * open. */
static void make_lower(void)
{
    int ready[2], go[2];
    char path[64];
    if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) || umount2(HARNESS, MNT_DETACH))
        die("mount namespace");
    int upper_pids = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
    if (upper_pids < 0 || unshare(CLONE_NEWPID) || pipe2(ready, O_CLOEXEC) || pipe2(go, O_CLOEXEC))
        die("PID namespace of the bus");
    pid_t bus = fork();
    if (bus < 0)
        die("fork");
    if (bus == 0) {
        close(ready[0]);
        close(go[1]);
        be_bus(ready[1], go[0]);
    }
    close(ready[1]);
    read_byte(ready[0]);
    bus_watched = (int)syscall(SYS_pidfd_open, bus, 0);
    first_watched = bus_watched < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, bus_watched, FIRST_WATCHED, 0);
    if (first_watched < 0)
        die("PIDs to watch");
    /* Opened before /proc is the session's, which does not show the bus. */
    snprintf(path, sizeof path, "/proc/%d/ns/pid_for_children", bus);
    session_pids = open(path, O_RDONLY | O_CLOEXEC);
    if (session_pids < 0)
        die(path);
    write_byte(go[1]);
    read_byte(ready[0]);
    if (setns(upper_pids, CLONE_NEWPID))
        die("setns");
    for (int i = 0; i < 2; i++)
        close(go[i]);
    close(ready[0]);
    close(upper_pids);
}

/* ---- starting programs ---- */

/* Cut the texts of a request into vectors; an error number when they are not what the counts say. */
static int read_texts(int fd, const struct request *r, char **folder, char ***arguments, char ***variables)
{
    struct stat info;
    if (fstat(fd, &info) || info.st_size < 2 || !r->arguments)
        return EINVAL;
    if (info.st_size > (off_t)MAX_TEXTS_BYTES || r->arguments > MAX_TEXTS || r->variables > MAX_TEXTS)
        return E2BIG;
    size_t size = (size_t)info.st_size, count = 1 + r->arguments + r->variables, found = 0;
    char *texts = malloc(size), **all = calloc(count + 3, sizeof *all);
    if (!texts || !all)
        return ENOMEM;
    if (pread(fd, texts, size, 0) != (ssize_t)size || texts[size - 1])
        return EINVAL;
    char **vector = all;
    for (char *at = texts; at < texts + size; at += strlen(at) + 1, found++) {
        if (found == count)
            return EINVAL;
        if (found == 1 || found == 1 + r->arguments)
            *vector++ = NULL;
        *vector++ = at;
    }
    *folder = all[0];
    *arguments = all + 2;
    *variables = all + 2 + r->arguments + 1;
    return found == count ? 0 : EINVAL;
}

/* execve by the PATH that the program will have; the error that counts is the first that is not "not there". */
static int run(char **arguments, char **variables)
{
    const char *name = arguments[0], *folders = "/usr/local/bin:/usr/bin:/bin";
    int first = 0;
    char path[4096];
    for (char **at = variables; *at; at++)
        if (!strncmp(*at, "PATH=", 5))
            folders = *at + 5;
    if (strchr(name, '/')) {
        execve(name, arguments, variables);
        return errno;
    }
    for (const char *at = folders; at;) {
        const char *end = strchrnul(at, ':');
        snprintf(path, sizeof path, "%.*s/%s", (int)(end - at), at, name);
        execve(path, arguments, variables);
        if (errno != ENOENT && errno != ENOTDIR && !first)
            first = errno;
        at = *end ? end + 1 : NULL;
    }
    return first ? first : ENOENT;
}

/* The program's process, until it is the program: it closes `to` by that, or says there why it cannot. Root in the
 * session may hold it, look into it and write to `to` in its place. */
static _Noreturn void be_program(const char *folder, char **arguments, char **variables, int to)
{
    struct answer failed = {0};
    setsid();
    if (chdir(folder))
        failed = (struct answer){errno, NO_FOLDER};
    else
        failed.error = run(arguments, variables);
    _exit(write(to, &failed, sizeof failed) == (ssize_t)sizeof failed ? 127 : 126);
}

/* In a process of the upper namespace that is made for this start only: the program's process must have nothing else
 * from its first moment on. */
static _Noreturn void make_program(const struct request *r, const int fds[FDS], int to)
{
    char *folder, **arguments, **variables;
    int error = read_texts(fds[TEXTS], r, &folder, &arguments, &variables);
    if (error == E2BIG) /* as execve would say */
        *made = (struct answer){error, 0};
    if (error)
        _exit(1);
    if (setns(session_pids, CLONE_NEWPID) || madvise(made, sizeof *made, MADV_DONTFORK)) {
        made->error = errno;
        _exit(1);
    }
    arrange((int[]){fds[STDIN], fds[STDOUT], fds[STDERR]}, to);
    become_user();
    reset_signals();
    /* The program's parent is ours, which waits for it. */
    long pid = syscall(SYS_clone, CLONE_PARENT | SIGCHLD, NULL, NULL, NULL, NULL);
    if (pid == 0)
        be_program(folder, arguments, variables, 3);
    *made = pid < 0 ? (struct answer){errno, NOT_MADE} : (struct answer){0, (int)pid};
    _exit(0);
}

static void add(struct pids *to, pid_t pid)
{
    if (to->count == to->room) {
        size_t room = to->room ? 2 * to->room : 64;
        pid_t *all = realloc(to->all, room * sizeof *all);
        if (!all)
            return; /* it stays in the process table when it has ended */
        *to = (struct pids){all, to->count, room};
    }
    to->all[to->count++] = pid;
}

static void take_out(struct pids *from, pid_t pid)
{
    size_t kept = 0;
    for (size_t i = 0; i < from->count; i++)
        if (from->all[i] != pid)
            from->all[kept++] = from->all[i];
    from->count = kept;
}

/* Reap those that nobody asks for. */
static void reap_forgotten(void)
{
    size_t kept = 0;
    for (size_t i = 0; i < forgotten.count; i++)
        if (!waitpid(forgotten.all[i], NULL, WNOHANG))
            forgotten.all[kept++] = forgotten.all[i];
    forgotten.count = kept;
}

/* Reap a process whenever it ends. It may be stopped or traced, so nothing waits for that. */
static void forget(pid_t pid)
{
    take_out(&started, pid);
    add(&forgotten, pid);
    reap_forgotten();
}

static struct answer start(const struct request *r, const int fds[FDS])
{
    int reports[2];
    if (pipe2(reports, O_CLOEXEC))
        return (struct answer){errno, NOT_MADE};
    *made = (struct answer){EAGAIN, NOT_MADE};
    pid_t maker = fork();
    if (maker == 0)
        make_program(r, fds, reports[1]);
    close(reports[1]);
    if (maker > 0)
        waitpid(maker, NULL, 0);
    struct answer answer = *made, failed = {0};
    struct pollfd report = {.fd = reports[0], .events = POLLIN};
    /* One report and one deadline, whoever writes. */
    if (!answer.error && poll(&report, 1, EXEC_S * 1000) > 0 &&
        read(reports[0], &failed, sizeof failed) == (ssize_t)sizeof failed && failed.error > 0) {
        kill(answer.value, SIGKILL);
        forget(answer.value);
        answer = (struct answer){failed.error, failed.value == NO_FOLDER ? NO_FOLDER : 0};
    } else if (!answer.error) {
        add(&started, answer.value);
    }
    close(reports[0]);
    return answer;
}

/* ---- serving the guest agent ---- */

static bool receive(int peer, struct request *r, int fds[FDS], int *count)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int) * FDS)];
        struct cmsghdr align;
    } control;
    struct iovec part = {r, sizeof *r};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t got = recvmsg(peer, &message, MSG_CMSG_CLOEXEC);
    *count = 0;
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    if (got > 0 && head && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS) {
        *count = (int)((head->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(fds, CMSG_DATA(head), (size_t)*count * sizeof(int));
    }
    return got == (ssize_t)sizeof *r && !(message.msg_flags & (MSG_TRUNC | MSG_CTRUNC));
}

static struct answer reap(pid_t pid)
{
    int status = 0;
    pid_t found = pid > 0 ? waitpid(pid, &status, WNOHANG) : -1;
    if (found)
        take_out(&started, pid);
    if (found > 0)
        return (struct answer){0, status};
    return (struct answer){found < 0 ? ECHILD : EAGAIN, 0};
}

/* Take a request and answer it; false when there is no more of them. */
static bool serve_one(int peer)
{
    struct request r;
    int fds[FDS], count;
    struct answer answer = {.error = EINVAL, .value = NOT_MADE};
    bool whole = receive(peer, &r, fds, &count);
    if (whole && r.op == START && count == FDS) {
        answer = start(&r, fds);
    } else if (whole && r.op == REAP) {
        answer = reap(r.pid);
    } else if (whole && r.op == FORGET) {
        forget(r.pid);
        answer = (struct answer){0};
    }
    for (int i = 0; i < count; i++)
        close(fds[i]);
    if (!whole)
        return false;
    bool sent = send(peer, &answer, sizeof answer, MSG_NOSIGNAL) == (ssize_t)sizeof answer;
    if (!sent && r.op == START && !answer.error) {
        kill(-answer.value, SIGKILL); /* whoever asked has given it up */
        forget(answer.value);
    }
    return sent;
}

/* Take a connection. What an agent before this one has started is nobody's any more. */
static int meet(int listening)
{
    static pid_t agent;
    struct ucred other;
    socklen_t size = sizeof other;
    int peer = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
    if (peer < 0 && (errno == ECONNABORTED || errno == EINTR))
        return -1;
    if (peer < 0 || getsockopt(peer, SOL_SOCKET, SO_PEERCRED, &other, &size))
        die("connection");
    while (other.pid != agent && started.count)
        forget(started.all[0]);
    agent = other.pid;
    return peer;
}

/* Serve one connection at a time for as long as there is a session. */
static _Noreturn void serve(int listening)
{
    sigset_t children;
    struct signalfd_siginfo ended;
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    made = mmap(NULL, sizeof *made, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED || sigprocmask(SIG_BLOCK, &children, NULL))
        die("server");
    struct pollfd watched[] = {
        {.fd = signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK), .events = POLLIN},
        {.fd = bus_watched, .events = POLLIN},
        {.fd = first_watched, .events = POLLIN},
        {.fd = listening, .events = POLLIN},
    };
    int peer = -1;
    for (;;) {
        watched[3].fd = peer < 0 ? listening : peer;
        if (poll(watched, 4, -1) < 0)
            die("poll");
        if (watched[1].revents || watched[2].revents) {
            fprintf(stderr, "osgym-session: the session's %s has ended\n", watched[1].revents ? "bus" : "first process");
            _exit(EXIT_SESSION_LOST);
        }
        if (watched[0].revents && read(watched[0].fd, &ended, sizeof ended) > 0)
            reap_forgotten();
        if (!watched[3].revents)
            continue;
        if (peer < 0) {
            peer = meet(listening);
        } else if (!serve_one(peer)) {
            close(peer);
            peer = -1;
        }
    }
}

/* ---- the start ---- */

/* Start the desktop's programs as soon as the X server is up, which the container's first process writes. That is
 * their parent, and of the process that waits. */
static void start_programs(int up)
{
    pid_t pid = fork();
    if (pid < 0)
        die("fork");
    if (pid) {
        waitpid(pid, NULL, 0);
        return;
    }
    if ((pid = fork()) < 0)
        die("fork");
    if (pid)
        _exit(0);
    read_byte(up);
    if (setns(session_pids, CLONE_NEWPID))
        die("setns");
    pid = fork();
    if (pid < 0)
        die("fork");
    if (pid)
        _exit(0);
    become(PROGRAMS);
}

/* Go into the control groups of the session, with all that is started here: what its programs use is counted apart
 * from what the harness uses, and has smaller caps. */
static void enter_groups(void)
{
    for (int i = 0; i < control_groups; i++)
        if (write(FIRST_GROUP + i, "0", 1) != 1)
            die("control group");
}

static _Noreturn void be_server(int ready)
{
    struct rlimit files;
    enter_groups();
    wipe_environment();
    dup2(ready, 3);
    if (syscall(SYS_close_range, 4, ~0u, 0) || fcntl(3, F_SETFD, FD_CLOEXEC))
        die("descriptors");
    if (!getrlimit(RLIMIT_NOFILE, &files) && files.rlim_max > 2 * AGENTS_OWN_FDS) {
        files.rlim_max -= AGENTS_OWN_FDS;
        if (files.rlim_cur > files.rlim_max)
            files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    make_folders();
    int up = open(DISPLAY_IS_UP, O_RDWR | O_CLOEXEC), listening = listen_at(SOCKET);
    if (up < 0)
        die(DISPLAY_IS_UP);
    make_lower();
    start_programs(up);
    close(up);
    prctl(PR_SET_DUMPABLE, 0);
    write_byte(3);
    close(3);
    serve(listening);
}

/* Wait for the end of the harness or of the server, whichever comes first, and end so. */
static int wait_for_end(pid_t server, pid_t harness)
{
    for (;;) {
        int status;
        pid_t ended = waitpid(-1, &status, 0);
        if (ended == server || (ended < 0 && errno != EINTR))
            return EXIT_SESSION_LOST;
        if (ended == harness)
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: osgym-session USER PROGRAM [ARGUMENT...]\n");
        return 2;
    }
    const struct passwd *found = getpwnam(argv[1]);
    if (!found || getgrouplist(argv[1], found->pw_gid, groups, &group_count) < 0)
        die(argv[1]);
    user = found->pw_uid;
    user_group = found->pw_gid;
    const char *given = getenv("OSGYM_SESSION_GROUPS");
    control_groups = given ? atoi(given) : 0;
    if (control_groups < 0 || control_groups > MAX_GROUPS_GIVEN) {
        fprintf(stderr, "osgym-session: OSGYM_SESSION_GROUPS must be 0 to %d, not %s\n", MAX_GROUPS_GIVEN, given);
        return 2;
    }
    for (int i = 0; i < control_groups; i++)
        if (fcntl(FIRST_GROUP + i, F_SETFD, FD_CLOEXEC)) /* the harness stays in the groups above */
            die("control group");
    unsetenv("OSGYM_SESSION_GROUPS");
    int ready[2];
    if (pipe2(ready, O_CLOEXEC))
        die("pipe");
    pid_t server = fork();
    if (server < 0)
        die("fork");
    if (server == 0)
        be_server(ready[1]);
    close(ready[1]);
    read_byte(ready[0]); /* fails when the server has ended */
    close(ready[0]);
    pid_t harness = fork();
    if (harness < 0)
        die("fork");
    if (harness == 0) {
        execvp(argv[2], argv + 2);
        die(argv[2]);
    }
    /* The guest agent's socket is the harness's alone: who else has one is taken for an impostor. */
    if (syscall(SYS_close_range, 3, ~0u, 0))
        die("close_range");
    return wait_for_end(server, harness);
}
