/* osgym-session: programs that the guest agent asks for, from a request to the exit status. */
#include "session.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <fcntl.h>
#include <unistd.h>

#define MAX_TEXTS_BYTES (16u << 20)
#define MAX_TEXTS 65536
#define EXEC_S 5 /* a program that has not begun by then counts as started */

struct pids {
    pid_t *all;
    size_t count, room;
};

/* What a maker found out: in memory that the program's process does not get, since root below may write to all of it. */
static struct answer *made;
static struct pids started, forgotten; /* by the agent that is connected; what nobody asks for */

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
    if (enter_session() || madvise(made, sizeof *made, MADV_DONTFORK)) {
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
void reap_forgotten(void)
{
    size_t kept = 0;
    for (size_t i = 0; i < forgotten.count; i++)
        if (!waitpid(forgotten.all[i], NULL, WNOHANG))
            forgotten.all[kept++] = forgotten.all[i];
    forgotten.count = kept;
}

/* Reap a process whenever it ends. It may be stopped or traced, so nothing waits for that. */
void forget(pid_t pid)
{
    take_out(&started, pid);
    add(&forgotten, pid);
    reap_forgotten();
}

struct answer start(const struct request *r, const int fds[FDS])
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

struct answer reap(pid_t pid)
{
    int status = 0;
    pid_t found = pid > 0 ? waitpid(pid, &status, WNOHANG) : -1;
    if (found)
        take_out(&started, pid);
    if (found > 0)
        return (struct answer){0, status};
    return (struct answer){found < 0 ? ECHILD : EAGAIN, 0};
}

/* What an agent before this one has started is nobody's any more. */
void forget_all(void)
{
    while (started.count)
        forget(started.all[0]);
}

void prepare_starts(void)
{
    made = mmap(NULL, sizeof *made, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED)
        die("memory of starts");
}
