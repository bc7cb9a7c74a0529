/* osgym-session: the guest agent's requests.
 *
 * Protocol, over SOCK_SEQPACKET, one request and one answer at a time:
 *   START, with four descriptors: a file with NUL-terminated texts (folder, arguments, environment), and the three
 *          standard ones. Answer: error number, and the PID as the upper namespace counts (or NO_FOLDER, or NOT_MADE
 *          when not even a process for the program could be made).
 *   REAP, with a PID. Answer: error number and wait status. Until then the PID is no other process's.
 *   FORGET, with a PID that nobody asks for again.
 *   FREE_CACHES and TRIM_DISK, in a machine that is about to be frozen. Answer: error number, and MiB trimmed.
 */
#include "session.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { START = 1, REAP = 2, FORGET = 3, FREE_CACHES = 4, TRIM_DISK = 5 };

int listen_at(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) || chown(path, account.user, account.group) ||
        listen(fd, 4))
        die(path);
    return fd;
}

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
    } else if (whole && r.op == FREE_CACHES && session.root) {
        answer = free_caches();
    } else if (whole && r.op == TRIM_DISK && session.root) {
        answer = trim_disk();
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

/* Take a connection. */
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
    if (other.pid != agent)
        forget_all();
    agent = other.pid;
    return peer;
}

/* Serve one connection at a time for as long as there is a session. */
_Noreturn void serve(int listening)
{
    sigset_t children;
    struct signalfd_siginfo ended;
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    prepare_starts();
    if (sigprocmask(SIG_BLOCK, &children, NULL))
        die("server");
    struct pollfd watched[] = {
        {.fd = signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK), .events = POLLIN},
        {.fd = session.bus, .events = POLLIN},
        {.fd = session.first, .events = POLLIN},
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
