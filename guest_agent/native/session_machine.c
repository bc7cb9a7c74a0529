/* osgym-session: what a virtual machine needs besides.
 *
 * Root of the machine owns modules, disks and units, so the session has a user namespace of its own. Users keep their
 * numbers in it: files have the owners that they had, and `sudo` makes root, who owns what root owns on the disk and
 * has no capability over the machine. Many files of the kernel ask for the number alone (/proc/sys, /proc/sysrq-trigger,
 * /sys), so the session sees them read-only or not at all. Mounts that a mount namespace takes over from one of a
 * greater user namespace cannot be taken away again (mount_namespaces(7)).
 *
 * The session writes to a layer of its own. Its root is the folder LAYER/root; the machine's folders with something in
 * them are overlays over it. What is outside the session, the kernel's helpers, init and the guest agent, runs from
 * the folders below, to which nothing in the session can write. /home and /tmp are shared as they are. The host
 * reads files of the session from LAYER (tasks/evaluator/disk/session_view.py).
 */
#include "session.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define LAYER "/.session"
#define AGENT_SOCKET 3
#define BACKLOG 64
#define USERS "0 0 65536"
#define SESSION_PIDS "1024" /* as replicas of containers have (replica_pids) */
#define HARNESS_WEIGHT "1000" /* of 100 that the session has: ten of eleven parts of a processor that both want */
#define FOLDERS(a) (sizeof(a) / sizeof *(a))

/* Never overlays: what is made for the session alone, what it shares, and what is nobody's in it. */
static const char *const not_layered[] = {"proc", "sys", "dev", "run", "tmp", "home", "boot", "lost+found", LAYER + 1};
static const char *const devices[] = {"null", "zero", "full", "random", "urandom", "tty"};
/* Of /proc, what is asked for by the number of a user only; and what shows the machine's memory. */
static const char *const read_only[] = {"sys", "bus", "fs", "irq", "acpi", "scsi", "driver", "sysrq-trigger"};
static const char *const blank[] = {"kcore", "kmsg", "keys", "key-users", "timer_list", "sched_debug", "latency_stats",
                                    "mtrr"};

static char *path_in(const char *folder, const char *name)
{
    char *path;
    if (asprintf(&path, "%s/%s", folder, name) < 0)
        die("memory");
    return path;
}

static void write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
        die(path);
    close(fd);
}

static void make_folder(const char *path, mode_t mode)
{
    if (mkdir(path, mode) && errno != EEXIST)
        die(path);
}

static bool is_among(const char *name, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!strcmp(name, names[i]))
            return true;
    return false;
}

/* ---- control groups ---- */

static char group[4096]; /* folder of the group that the machine's init gave to this program */

/* Have the groups below count one more resource, where the kernel and the machine's init let them. */
static bool control(const char *resource)
{
    int fd = open(path_in(group, "cgroup.subtree_control"), O_WRONLY | O_CLOEXEC);
    bool counted = write(fd, resource, strlen(resource)) == (ssize_t)strlen(resource);
    if (!counted)
        fprintf(stderr, "osgym-session: %s is not shared out to the session: %s\n", resource + 1, strerror(errno));
    close(fd);
    return counted;
}

/* Two groups below that of this program: what the session forks and computes leaves room for the harness. */
void make_groups(void)
{
    char line[2048];
    FILE *file = fopen("/proc/self/cgroup", "re");
    do {
        if (!file || !fgets(line, sizeof line, file))
            die("/proc/self/cgroup");
    } while (strncmp(line, "0::", 3));
    fclose(file);
    line[strcspn(line, "\n")] = 0;
    snprintf(group, sizeof group, "/sys/fs/cgroup%s", line + 3);
    char *harness = path_in(group, "harness"), *below = path_in(group, "session");
    make_folder(harness, 0755);
    make_folder(below, 0755);
    write_text(path_in(harness, "cgroup.procs"), "0");
    if (control("+pids"))
        write_text(path_in(below, "pids.max"), SESSION_PIDS);
    if (control("+cpu"))
        write_text(path_in(harness, "cpu.weight"), HARNESS_WEIGHT);
}

/* Go into the session's group, and be killed before the harness when memory runs out. */
void enter_session_group(void)
{
    write_text(path_in(group, "session/cgroup.procs"), "0");
    write_text("/proc/self/oom_score_adj", "0");
}

/* ---- the guest agent's socket ---- */

/* Open the guest agent's socket for it: nothing in the session can take the port when the agent starts anew. */
void listen_for_agent(const char *address)
{
    char host[64];
    const char *colon = strrchr(address, ':');
    struct sockaddr_in where = {.sin_family = AF_INET};
    snprintf(host, sizeof host, "%.*s", colon ? (int)(colon - address) : 0, address);
    if (!colon || inet_pton(AF_INET, host, &where.sin_addr) != 1)
        die(address);
    where.sin_port = htons((uint16_t)atoi(colon + 1));
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) ||
        bind(fd, (struct sockaddr *)&where, sizeof where) || listen(fd, BACKLOG))
        die(address);
    if (fd != AGENT_SOCKET && (dup2(fd, AGENT_SOCKET) < 0 || close(fd)))
        die(address);
    fcntl(AGENT_SOCKET, F_SETFD, 0);
    setenv("LISTEN_FDS", "1", 1);
}

/* ---- the session's root ---- */

/* A mount of a file or folder onto another, with more flags than the first has. */
static void bind_at(const char *from, const char *to, unsigned long flags)
{
    if (mount(from, to, NULL, MS_BIND, NULL) || (flags && mount(NULL, to, NULL, MS_BIND | MS_REMOUNT | flags, NULL)))
        die(to);
}

static void make_file(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0)
        die(path);
    close(fd);
}

/* A folder at `path` with the rights and the owner of another. */
static void make_alike(const char *path, const struct stat *other)
{
    struct stat found;
    if (!lstat(path, &found))
        return;
    if (mkdir(path, other->st_mode & 07777) || chown(path, other->st_uid, other->st_gid) ||
        chmod(path, other->st_mode & 07777))
        die(path);
}

/* Whether a folder has nothing in it. */
static bool is_empty(const char *path)
{
    DIR *folder = opendir(path);
    struct dirent *entry;
    bool empty = true;
    while (folder && empty && (entry = readdir(folder)))
        empty = !strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..");
    if (folder)
        closedir(folder);
    return empty;
}

/* An overlay of one of the machine's folders, in the session's root. What the session writes survives a restart. */
static void lay_over(const char *name, const struct stat *info)
{
    char options[512];
    char *upper = path_in(LAYER "/upper", name), *work = path_in(LAYER "/work", name);
    make_alike(upper, info);
    make_folder(work, 0700);
    snprintf(options, sizeof options,
             "lowerdir=/%s,upperdir=%s,workdir=%s,index=off,metacopy=off,redirect_dir=off,xino=off", name, upper, work);
    if (mount("session", path_in(session.root, name), "overlay", MS_NODEV, options))
        die(options);
}

/* What the machine's root has: links, empty folders and overlays. */
static void fill_root(void)
{
    DIR *folder = opendir("/");
    struct dirent *entry;
    if (!folder)
        die("/");
    while ((entry = readdir(folder))) {
        struct stat info;
        char link[256], *path = path_in(session.root, entry->d_name), *own = path_in("", entry->d_name);
        ssize_t length = readlink(own, link, sizeof link - 1);
        if (entry->d_name[0] == '.' && (!entry->d_name[1] || !strcmp(entry->d_name, "..")))
            continue;
        if (length > 0) {
            link[length] = 0;
            if (symlink(link, path) && errno != EEXIST)
                die(path);
        } else if (!lstat(own, &info) && S_ISDIR(info.st_mode) && strcmp(own, LAYER)) {
            make_alike(path, &info);
            if (!is_among(entry->d_name, not_layered, FOLDERS(not_layered)) && !is_empty(own))
                lay_over(entry->d_name, &info);
        }
        free(path);
        free(own);
    }
    closedir(folder);
}

static void make_dev(void)
{
    static const char *const links[][2] = {{"pts/ptmx", "ptmx"},
                                           {"/proc/self/fd", "fd"},
                                           {"/proc/self/fd/0", "stdin"},
                                           {"/proc/self/fd/1", "stdout"},
                                           {"/proc/self/fd/2", "stderr"}};
    char *dev = path_in(session.root, "dev"), *pts = path_in(dev, "pts"), *shm = path_in(dev, "shm");
    if (mount("dev", dev, "tmpfs", MS_NOSUID | MS_NOEXEC, "mode=755,size=1m,nr_inodes=256"))
        die(dev);
    for (size_t i = 0; i < FOLDERS(devices); i++) {
        char *path = path_in(dev, devices[i]);
        make_file(path);
        bind_at(path_in("/dev", devices[i]), path, 0);
    }
    for (size_t i = 0; i < FOLDERS(links); i++)
        if (symlink(links[i][0], path_in(dev, links[i][1])))
            die(links[i][1]);
    make_folder(pts, 0755);
    make_folder(shm, 0755);
    if (mount("devpts", pts, "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620,gid=5,max=256") ||
        mount("shm", shm, "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777"))
        die(pts);
}

/* What the desktop expects in /run, and nothing of the machine's: no socket of its init or of its system bus. */
static void make_run(void)
{
    static const struct {
        const char *name;
        mode_t mode;
    } folders[] = {{"lock", 01777}, {"sudo", 0711}, {"user", 0755}, {"user/1000", 0700}, {"osgym", 0755}};
    char *run = path_in(session.root, "run");
    if (mount("run", run, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755"))
        die(run);
    for (size_t i = 0; i < FOLDERS(folders); i++) {
        char *path = path_in(run, folders[i].name);
        make_folder(path, folders[i].mode);
        if (chmod(path, folders[i].mode))
            die(path);
    }
    bind_at("/run/user/1000", path_in(run, "user/1000"), 0);
}

/* Make all of the session's root but /proc, in the upper mount namespace, where the guest agent reads the session's
 * files. */
void make_root(void)
{
    struct stat info;
    make_folder(LAYER, 0700);
    make_folder(LAYER "/root", 0755);
    make_folder(LAYER "/upper", 0755);
    make_folder(LAYER "/work", 0700);
    make_folder(session.root, 0755);
    bind_at(LAYER "/root", session.root, MS_NODEV);
    fill_root();
    bind_at("/home", path_in(session.root, "home"), 0);
    bind_at("/tmp", path_in(session.root, "tmp"), MS_NOSUID | MS_NODEV);
    bind_at("/sys", path_in(session.root, "sys"), MS_RDONLY | GUARDED);
    make_dev();
    make_run();
    if (!stat("/run/osgym/identity/machine-id", &info))
        bind_at("/run/osgym/identity/machine-id", path_in(session.root, "etc/machine-id"), MS_RDONLY);
}

/* Mount the /proc of this PID namespace into the session's root. */
void mount_proc(void)
{
    struct stat info;
    char *proc = path_in(session.root, "proc");
    if (mount("proc", proc, "proc", GUARDED, NULL))
        die(proc);
    for (size_t i = 0; i < FOLDERS(read_only); i++) {
        char *path = path_in(proc, read_only[i]);
        if (!stat(path, &info))
            bind_at(path, path, MS_RDONLY | GUARDED);
    }
    for (size_t i = 0; i < FOLDERS(blank); i++) {
        char *path = path_in(proc, blank[i]);
        if (!stat(path, &info))
            bind_at("/dev/null", path, 0);
    }
    if (!stat("/run/osgym/identity/boot-id", &info))
        bind_at("/run/osgym/identity/boot-id", path_in(proc, "sys/kernel/random/boot_id"), MS_RDONLY);
}

/* Leave the machine's root, in a mount namespace of this process and its child. */
void enter_root(void)
{
    if (chdir(session.root) || syscall(SYS_pivot_root, ".", ".") || umount2(".", MNT_DETACH) || chdir("/"))
        die("root of the session");
}

/* ---- the user namespace ---- */

/* Whoever calls has no user until `map_users`. Mounts made so far cannot be changed from here on.
 *
 * The namespace belongs to the guest agent's user: the kernel lets nobody but its owner above, and root, look at the
 * threads in it, and the agent tells by them when the screen is final. */
void enter_user_namespace(void)
{
    if (seteuid(account.user) || unshare(CLONE_NEWUSER | CLONE_NEWNS))
        die("user namespace");
}

void follow_user_namespace(int process)
{
    if (setns(process, CLONE_NEWUSER | CLONE_NEWNS))
        die("user namespace");
}

/* In a process of its own: allow no control group namespace in the user namespace of another, nor in any below it. Only
 * with one could its root mount control groups, and end the session with them. */
static void forbid_group_namespaces(const char *user_namespace)
{
    int status, fd = open(user_namespace, O_RDONLY | O_CLOEXEC);
    pid_t pid = fork();
    if (pid == 0) {
        if (setns(fd, CLONE_NEWUSER))
            die(user_namespace);
        write_text("/proc/sys/user/max_cgroup_namespaces", "0");
        _exit(0);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
        die("control group namespaces");
    close(fd);
}

void map_users(pid_t process)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/uid_map", process);
    write_text(path, USERS);
    snprintf(path, sizeof path, "/proc/%d/gid_map", process);
    write_text(path, USERS);
    snprintf(path, sizeof path, "/proc/%d/ns/user", process);
    forbid_group_namespaces(path);
}

/* ---- before the machine is frozen ---- */

/* Free what the kernel keeps of files. */
struct answer free_caches(void)
{
    sync();
    int fd = open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, "3", 1) != 1)
        return (struct answer){errno, 0};
    close(fd);
    return (struct answer){0, 0};
}

/* Tell the disk which of its blocks hold nothing; the answer's value is how many MiB that are. */
struct answer trim_disk(void)
{
    struct fstrim_range range = {.len = UINT64_MAX};
    int fd = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    sync();
    if (fd < 0 || ioctl(fd, FITRIM, &range))
        return (struct answer){errno, 0};
    close(fd);
    sync();
    return (struct answer){0, (int32_t)(range.len >> 20)};
}
