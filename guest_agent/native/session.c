/* osgym-session: keeps what runs in a desktop apart from what looks after it, in a container.
 *
 * The guest agent, its helpers and the X server run in the container's own PID and mount namespace. Everything that
 * a user of the desktop can start, with root by sudo too, runs in namespaces below: there no process of the upper
 * ones has a number, and nothing leads to one (no /proc that shows it, no descriptor, no mount). The session bus
 * has a PID namespace between the two.
 *
 * Started once by the container's first process, as root: makes the namespaces, starts the session bus and the
 * desktop's programs, and then starts what the guest agent asks for over a socket that the upper namespace alone can
 * see. For each start a process of the upper namespace that holds nothing but what the program gets makes the
 * program's process in the lower one, since root there may look into a process from its first moment on. Nothing is
 * loaded after the start: root in the desktop may have changed every file.
 *
 * Protocol, over SOCK_SEQPACKET, one request and one answer at a time:
 *   START, with four descriptors: a file with NUL-terminated texts (folder, arguments, environment), and the three
 *          standard ones. Answer: error number, and the PID as the upper namespace counts (or NO_FOLDER).
 *   REAP, with a PID. Answer: error number and wait status.
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
#include <sys/mount.h>
#include <sys/prctl.h>
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
#define GUARDED (MS_NOSUID | MS_NODEV | MS_NOEXEC)

enum { START = 1, REAP = 2 };
enum { NO_FOLDER = -1 };
enum { TEXTS, STDIN, STDOUT, STDERR, FDS };

struct request {
    uint32_t op, arguments, variables; /* counts of texts */
    int32_t pid;
};
struct answer {
    int32_t error, value;
};
struct report { /* of the processes that make a program's process */
    int32_t pid, error;
};

static uid_t user;
static gid_t groups[MAX_GROUPS];
static int group_count = MAX_GROUPS;
static int session_pids;

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "osgym-session: %s: %s\n", what, strerror(errno));
    _exit(1);
}

/* ---- what a process is before it becomes a program ---- */

/* Its groups were looked up at the start: later, whoever has root in the desktop says where they are looked up. */
static void become_user(void)
{
    if (setgroups((size_t)group_count, groups) || setresgid(user, user, user) || setresuid(user, user, user))
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
    syscall(SYS_close_range, kept >= 0 ? 4 : 3, ~0u, 0);
}

/* Variables of the harness are nobody else's. */
static void clean_environment(void)
{
    char **to = environ;
    for (char **from = environ; *from; from++)
        if (strncmp(*from, "OSGYM_", 6) && strncmp(*from, "LISTEN_", 7))
            *to++ = *from;
    *to = NULL;
}

/* Become one of the desktop's own programs. */
static void become(const char *path)
{
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    arrange((int[]){null, 1, 2}, -1);
    become_user();
    reset_signals();
    clean_environment();
    execl(path, path, (char *)NULL);
    die(path);
}

/* ---- the namespaces ---- */

static void make_folders(void)
{
    char options[96];
    snprintf(options, sizeof options, "mode=700,uid=%u,gid=%u,size=128m", user, user);
    if (mount("harness", HARNESS, "tmpfs", GUARDED, options))
        die(HARNESS);
    if (mkdir(FRAMES, 0700) || chown(FRAMES, user, user) || mkfifo(DISPLAY_IS_UP, 0600) ||
        chown(DISPLAY_IS_UP, user, user))
        die(FRAMES);
}

static int listen_at(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) || chown(path, user, user) || listen(fd, 4))
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
        _exit(1); /* whoever should have written has said why it did not */
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
        read_byte(go);
        be_first(below[1]);
    }
    close(below[1]);
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
    if (bus == 0)
        be_bus(ready[1], go[0]);
    close(ready[1]);
    read_byte(ready[0]);
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

/* Texts of a request, cut into vectors; false when they are not what the counts say. */
static bool read_texts(int fd, const struct request *r, char **folder, char ***arguments, char ***variables)
{
    struct stat info;
    if (fstat(fd, &info) || info.st_size < 2 || info.st_size > (off_t)MAX_TEXTS_BYTES || !r->arguments ||
        r->arguments > MAX_TEXTS || r->variables > MAX_TEXTS)
        return false;
    size_t size = (size_t)info.st_size, count = 1 + r->arguments + r->variables, found = 0;
    char *texts = malloc(size), **all = calloc(count + 3, sizeof *all);
    if (!texts || !all || pread(fd, texts, size, 0) != (ssize_t)size || texts[size - 1])
        return false;
    char **vector = all;
    for (char *at = texts; at < texts + size; at += strlen(at) + 1, found++) {
        if (found == count)
            return false;
        if (found == 1 || found == 1 + r->arguments)
            *vector++ = NULL;
        *vector++ = at;
    }
    *folder = all[0];
    *arguments = all + 2;
    *variables = all + 2 + r->arguments + 1;
    return found == count;
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

/* In a process of the upper namespace that is made for this start only: the program's process must have nothing else
 * from its first moment on. */
static void make_program(const struct request *r, const int fds[FDS], int to)
{
    struct report told = {0};
    char *folder, **arguments, **variables;
    if (!read_texts(fds[TEXTS], r, &folder, &arguments, &variables))
        told.error = EINVAL;
    else if (setns(session_pids, CLONE_NEWPID))
        told.error = errno;
    if (!told.error) {
        arrange((int[]){fds[STDIN], fds[STDOUT], fds[STDERR]}, to);
        to = 3;
        become_user();
        reset_signals();
        /* The program's parent is ours, which waits for it. */
        long pid = syscall(SYS_clone, CLONE_PARENT | SIGCHLD, NULL, NULL, NULL, NULL);
        if (pid == 0) {
            setsid();
            told.pid = chdir(folder) ? NO_FOLDER : 0;
            told.error = told.pid ? errno : run(arguments, variables);
        } else if (pid < 0) {
            told.error = errno;
        } else {
            told.pid = (int)pid;
        }
    }
    _exit(write(to, &told, sizeof told) == (ssize_t)sizeof told ? 0 : 1);
}

static struct answer start(const struct request *r, const int fds[FDS])
{
    struct answer answer = {0};
    struct report told;
    int reports[2], status, pid = 0;
    if (pipe2(reports, O_CLOEXEC))
        return (struct answer){.error = errno};
    pid_t maker = fork();
    if (maker == 0)
        make_program(r, fds, reports[1]);
    close(reports[1]);
    if (maker < 0) {
        answer.error = errno;
        close(reports[0]);
        return answer;
    }
    waitpid(maker, &status, 0);
    struct pollfd one = {.fd = reports[0], .events = POLLIN};
    /* The program's process closes the pipe when it has become the program, or says why it cannot. */
    while (poll(&one, 1, EXEC_S * 1000) > 0 && read(reports[0], &told, sizeof told) == (ssize_t)sizeof told) {
        if (told.error)
            answer = (struct answer){told.error, told.pid};
        else
            pid = told.pid;
    }
    close(reports[0]);
    if (answer.error && pid > 0)
        waitpid(pid, &status, 0);
    else if (!answer.error)
        answer = (struct answer){pid > 0 ? 0 : EAGAIN, pid};
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
    if (found > 0)
        return (struct answer){0, status};
    return (struct answer){found < 0 ? ECHILD : EAGAIN, 0};
}

static void serve(int listening)
{
    for (;;) {
        int peer = accept4(listening, NULL, NULL, SOCK_CLOEXEC), count;
        if (peer < 0)
            continue;
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ; /* what an agent before this one has started, and has not asked for */
        struct request r;
        int fds[FDS];
        while (receive(peer, &r, fds, &count)) {
            struct answer answer = {.error = EINVAL};
            if (r.op == START && count == FDS)
                answer = start(&r, fds);
            else if (r.op == REAP)
                answer = reap(r.pid);
            for (int i = 0; i < count; i++)
                close(fds[i]);
            if (send(peer, &answer, sizeof answer, MSG_NOSIGNAL) != (ssize_t)sizeof answer)
                break;
        }
        close(peer);
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

static void be_server(int ready)
{
    make_folders();
    int up = open(DISPLAY_IS_UP, O_RDWR | O_CLOEXEC), listening = listen_at(SOCKET);
    if (up < 0)
        die(DISPLAY_IS_UP);
    make_lower();
    start_programs(up);
    close(up);
    prctl(PR_SET_DUMPABLE, 0);
    write_byte(ready);
    close(ready);
    serve(listening);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: osgym-session USER\n");
        return 2;
    }
    const struct passwd *found = getpwnam(argv[1]);
    if (!found || getgrouplist(argv[1], found->pw_gid, groups, &group_count) < 0)
        die(argv[1]);
    user = found->pw_uid;
    int ready[2];
    if (pipe2(ready, O_CLOEXEC))
        die("pipe");
    pid_t server = fork();
    if (server < 0)
        die("fork");
    if (server == 0) {
        close(ready[0]);
        be_server(ready[1]);
    }
    close(ready[1]);
    read_byte(ready[0]); /* fails when the server has ended */
    return 0;
}
