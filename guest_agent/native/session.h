/* What the parts of osgym-session share; session.c says what the program does. */
#ifndef OSGYM_SESSION_H
#define OSGYM_SESSION_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define HARNESS "/run/osgym/harness" /* memory that the upper namespace alone sees */
#define SOCKET HARNESS "/session.sock"
#define FRAMES HARNESS "/fb"
#define UP_NAME "up"
#define DISPLAY_IS_UP HARNESS "/" UP_NAME /* a pipe: something comes when the X server takes clients */
#define BUS "/usr/lib/osgym/bus"
#define PROGRAMS "/usr/lib/osgym/programs"
#define GUARDED (MS_NOSUID | MS_NODEV | MS_NOEXEC)
#define MAX_GROUPS 64
#define EXIT_SESSION_LOST 5

/* Desktop's user, looked up at the start: later, whoever has root in the desktop says where users are looked up. */
struct account {
    uid_t user;
    gid_t group, groups[MAX_GROUPS];
    int group_count;
};
extern struct account account;

/* Descriptors that lead to the session: its PID namespace, and PIDs of the bus and of the session's first process.
 * In a machine, `root` is the folder that becomes the session's root; NULL in a container. */
struct session {
    int pids, bus, first;
    const char *root;
};
extern struct session session;

struct request {
    uint32_t op, arguments, variables; /* counts of texts */
    int32_t pid;
};
struct answer {
    int32_t error, value;
};
enum { NO_FOLDER = -1, NOT_MADE = -2 };
enum { TEXTS, STDIN, STDOUT, STDERR, FDS };

/* session_process.c: what a process is before it becomes a program */
_Noreturn void die(const char *what);
void write_byte(int fd);
void read_byte(int fd);
void become_user(void);
void reset_signals(void);
void arrange(const int standard[3], int keep);
void wipe_environment(void);
void become(const char *path);

/* session_namespaces.c */
void make_folders(void);
void make_lower(void);
int enter_session(void);

/* session_machine.c: what a virtual machine needs besides */
void make_groups(void);
void enter_session_group(void);
void listen_for_agent(const char *address);
void make_root(void);
void mount_proc(void);
void enter_root(void);
void enter_user_namespace(void);
void follow_user_namespace(int process);
void map_users(pid_t process);
struct answer free_caches(void);
struct answer trim_disk(void);

/* session_starts.c: programs that the guest agent asks for */
void prepare_starts(void);
struct answer start(const struct request *r, const int fds[FDS]);
struct answer reap(pid_t pid);
void forget(pid_t pid);
void forget_all(void);
void reap_forgotten(void);

/* session_server.c: the guest agent's requests */
int listen_at(const char *path);
_Noreturn void serve(int listening);

#endif
