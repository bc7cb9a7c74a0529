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
 * asks for over a socket that the upper namespace alone can see. The other starts the harness when its folders are there,
 * and ends with its exit status. When the session is lost (the server, the bus or the first process of the session's
 * namespace has ended) it ends with EXIT_SESSION_LOST.
 *
 * For each start a process of the upper namespace that holds nothing but what the program gets, the maker, makes the
 * program's process in the lower one, since root there may look into a process, and take its descriptors, from its
 * first moment on. Nothing is loaded after the start: root in the desktop may have changed every file.
 *
 * Process groups do not end with a namespace: whatever runs in the session must be in a session of its own (setsid),
 * or a signal to its group reaches the harness.
 */
#include "session.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define FIRST_GROUP 4 /* after the three standard descriptors and the guest agent's socket */
#define MAX_GROUPS_GIVEN 8
/* Descriptors in flight between processes count for each user, against the limit of whoever sends one more: the guest
 * agent, which is the same user, can open so many more than programs. */
#define AGENTS_OWN_FDS 256

struct account account = {.group_count = MAX_GROUPS};
struct session session;
static int control_groups; /* descriptors from FIRST_GROUP on that move whoever writes to them into the session's */

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
    if (enter_session())
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
    if (session.root)
        enter_session_group();
    for (int i = 0; i < control_groups; i++)
        if (write(FIRST_GROUP + i, "0", 1) != 1)
            die("control group");
}

/* The harness may start as soon as the folders are there: going into control groups takes the kernel some milliseconds
 * each, in which the X server comes up. No program is started before `DISPLAY_IS_UP` has a reader. */
static _Noreturn void be_server(int ready)
{
    struct rlimit files;
    make_folders();
    write_byte(ready);
    enter_groups();
    wipe_environment();
    if (syscall(SYS_close_range, 3, ~0u, 0))
        die("descriptors");
    if (!getrlimit(RLIMIT_NOFILE, &files) && files.rlim_max > 2 * AGENTS_OWN_FDS) {
        files.rlim_max -= AGENTS_OWN_FDS;
        if (files.rlim_cur > files.rlim_max)
            files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    int listening = listen_at(SOCKET), harness = open(HARNESS, O_PATH | O_DIRECTORY | O_CLOEXEC);
    make_lower(); /* from here on the folder cannot be seen */
    int up = openat(harness, UP_NAME, O_RDWR | O_CLOEXEC);
    if (up < 0)
        die(DISPLAY_IS_UP);
    start_programs(up);
    close(up);
    close(harness);
    prctl(PR_SET_DUMPABLE, 0);
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
    if (!found || getgrouplist(argv[1], found->pw_gid, account.groups, &account.group_count) < 0)
        die(argv[1]);
    account.user = found->pw_uid;
    account.group = found->pw_gid;
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
    if ((session.root = getenv("OSGYM_SESSION_ROOT"))) {
        const char *listen_at = getenv("OSGYM_LISTEN");
        session.root = strdup(session.root); /* the server wipes the variable */
        make_groups();
        listen_for_agent(listen_at ? listen_at : "");
    }
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
