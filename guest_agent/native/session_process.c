/* osgym-session: what a process is before it becomes a program. */
#include "session.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

_Noreturn void die(const char *what)
{
    fprintf(stderr, "osgym-session: %s: %s\n", what, strerror(errno));
    _exit(1);
}

void write_byte(int fd)
{
    if (write(fd, "", 1) != 1)
        die("write");
}

void read_byte(int fd)
{
    char byte;
    if (read(fd, &byte, 1) != 1)
        _exit(EXIT_SESSION_LOST); /* whoever should have written has said why it did not */
}

void become_user(void)
{
    if (setgroups((size_t)account.group_count, account.groups) ||
        setresgid(account.group, account.group, account.group) ||
        setresuid(account.user, account.user, account.user))
        die("credentials");
}

void reset_signals(void)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (int number = 1; number < NSIG; number++)
        signal(number, SIG_DFL);
}

/* Put these three on 0, 1 and 2, and close all others but `keep`, which becomes 3 and closes on execve. */
void arrange(const int standard[3], int keep)
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
void wipe_environment(void)
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
void become(const char *path)
{
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    arrange((int[]){null, 1, 2}, -1);
    setsid();
    become_user();
    reset_signals();
    execl(path, path, (char *)NULL);
    die(path);
}
