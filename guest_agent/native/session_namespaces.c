/* osgym-session: the namespaces of the bus and of the session. */
#include "session.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define FIRST_WATCHED 100 /* the bus's descriptor that tells of the end of the session's first process */

/* Ends of pipes between the processes that make the namespaces. */
struct steps {
    int ready[2]; /* the bus has something for the server */
    int go[2];    /* the server lets the bus, and its child, go on */
    int below[2]; /* the session's first process has something for the bus */
    int follow[2]; /* the bus has gone into the session's user namespace */
};

void make_folders(void)
{
    char options[96];
    snprintf(options, sizeof options, "mode=700,uid=%u,gid=%u,size=128m", account.user, account.group);
    if (mount("harness", HARNESS, "tmpfs", GUARDED, options))
        die(HARNESS);
    if (mkdir(FRAMES, 0700) || chown(FRAMES, account.user, account.group) || mkfifo(DISPLAY_IS_UP, 0600) ||
        chown(DISPLAY_IS_UP, account.user, account.group))
        die(FRAMES);
}

/* Mount a /proc of this PID namespace. The new one first: the kernel lets a namespace have one only while it sees
 * one. */
static void replace_proc(void)
{
    static const char *const fresh = "/run/osgym/proc";
    if (mkdir(fresh, 0755) || mount("proc", fresh, "proc", GUARDED, NULL) || umount2("/proc", MNT_DETACH) ||
        mount(fresh, "/proc", NULL, MS_MOVE, NULL) || rmdir(fresh))
        die("/proc");
}

/* First process of the session's PID namespace: mounts a /proc of its own, then reaps orphans. */
static void be_first(const struct steps *steps, int bus)
{
    prctl(PR_SET_NAME, "osgym-first");
    if (session.root) {
        mount_proc();
        write_byte(steps->below[1]);
        read_byte(steps->follow[0]);
        follow_user_namespace(bus);
        prctl(PR_SET_DUMPABLE, 0);
    } else {
        replace_proc();
    }
    write_byte(steps->below[1]);
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
static void be_bus(struct steps *steps)
{
    int itself = (int)syscall(SYS_pidfd_open, getpid(), 0);
    if (itself < 0 || unshare(CLONE_NEWPID) || pipe2(steps->below, O_CLOEXEC) || pipe2(steps->follow, O_CLOEXEC))
        die("PID namespace of the session");
    if (session.root && (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL)))
        die("mount namespace of the session");
    pid_t first = fork();
    if (first < 0)
        die("fork");
    if (first == 0) {
        close(steps->ready[1]);
        close(steps->below[0]);
        close(steps->follow[1]);
        read_byte(steps->go[0]);
        be_first(steps, itself);
    }
    close(steps->below[1]);
    close(steps->follow[0]);
    int watched = (int)syscall(SYS_pidfd_open, first, 0);
    if (watched < 0 || dup3(watched, FIRST_WATCHED, O_CLOEXEC) < 0)
        die("first process of the session");
    write_byte(steps->ready[1]);
    read_byte(steps->below[0]);
    if (session.root) {
        enter_root();
        enter_user_namespace();
        write_byte(steps->ready[1]);
        read_byte(steps->go[0]); /* the users are mapped */
        write_byte(steps->follow[1]);
        read_byte(steps->below[0]);
    }
    write_byte(steps->ready[1]);
    become(BUS);
}

/* Leave this process in the upper PID namespace with the session's open: in a container in the lower mount namespace,
 * in a machine in the upper one. */
void make_lower(void)
{
    struct steps steps;
    char path[64];
    if (session.root)
        make_root();
    else if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
             umount2(HARNESS, MNT_DETACH))
        die("mount namespace");
    int upper_pids = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
    if (upper_pids < 0 || unshare(CLONE_NEWPID) || pipe2(steps.ready, O_CLOEXEC) || pipe2(steps.go, O_CLOEXEC))
        die("PID namespace of the bus");
    pid_t bus = fork();
    if (bus < 0)
        die("fork");
    if (bus == 0) {
        close(steps.ready[0]);
        close(steps.go[1]);
        be_bus(&steps);
    }
    close(steps.ready[1]);
    read_byte(steps.ready[0]);
    session.bus = (int)syscall(SYS_pidfd_open, bus, 0);
    session.first = session.bus < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, session.bus, FIRST_WATCHED, 0);
    if (session.first < 0)
        die("PIDs to watch");
    /* Opened before /proc is the session's, which does not show the bus. */
    snprintf(path, sizeof path, "/proc/%d/ns/pid_for_children", bus);
    session.pids = open(path, O_RDONLY | O_CLOEXEC);
    if (session.pids < 0)
        die(path);
    write_byte(steps.go[1]);
    read_byte(steps.ready[0]);
    if (session.root) {
        map_users(bus);
        write_byte(steps.go[1]);
        read_byte(steps.ready[0]);
    }
    if (setns(upper_pids, CLONE_NEWPID))
        die("setns");
    for (int i = 0; i < 2; i++)
        close(steps.go[i]);
    close(steps.ready[0]);
    close(upper_pids);
}

/* Have the next process of this one be in the session; -1 with errno where it cannot. */
int enter_session(void)
{
    static const int in_machine = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID;
    return session.root ? setns(session.first, in_machine) : setns(session.pids, CLONE_NEWPID);
}
