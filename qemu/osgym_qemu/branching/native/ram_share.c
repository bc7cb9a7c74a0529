/*
 * Loaded into QEMU by LD_PRELOAD, where it helps to branch machines faster. Without it all works as well.
 *
 * When QEMU maps the golden RAM file privately, this library
 *  - lets the kernel note which pages are written after the host agent asked it to (userfaultfd write
 *    protection in its asynchronous mode: no thread serves faults). The host agent asks, and reads the notes,
 *    by the ioctl PAGEMAP_SCAN on /proc/<pid>/pagemap, so there is nothing to do here afterwards;
 *  - waits, in a thread, for one request on an inherited socket: to map pages of another file over some
 *    of the RAM. That is how children share the pages in which their parent differs from the golden RAM.
 *
 * Nothing of this is reachable for the guest. The thread ends with the first request or with the socket, and
 * the host agent closes the socket before the guest runs.
 *
 * OSGYM_RAM_FD: descriptor of the golden RAM file; OSGYM_RAM_CONTROL: descriptor of the socket.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#if !defined(__LP64__)
#error "only 64-bit systems"
#endif
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#ifndef UFFD_FEATURE_WP_HUGETLBFS_SHMEM
#define UFFD_FEATURE_WP_HUGETLBFS_SHMEM (1 << 12)
#endif
#ifndef UFFD_FEATURE_WP_ASYNC
#define UFFD_FEATURE_WP_ASYNC (1 << 15)
#endif

#define MAGIC 0x314d41524d59474fULL /* "OGYMRAM1" */
#define BATCH 512
#define STACK_BYTES (64 * 1024)

struct request { uint64_t magic, count; };
struct run { uint64_t offset, length; };

static char *ram;
static size_t ram_bytes;
static int ram_prot;
static int faults = -1;

static int descriptor(const char *name)
{
    const char *text = getenv(name);
    return text && *text ? atoi(text) : -1;
}

/* Let the kernel note writes to the RAM. Where it cannot, the host agent sees that by itself. */
static void note_writes(void)
{
    if (faults < 0) {
        struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_WP_ASYNC | UFFD_FEATURE_WP_HUGETLBFS_SHMEM};
        /* Only faults of user space would reach a handler; there is none, so this needs no privilege. */
        faults = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
        if (faults >= 0 && ioctl(faults, UFFDIO_API, &api) < 0) {
            close(faults);
            faults = -1;
        }
    }
    if (faults >= 0) {
        struct uffdio_register wanted = {.range = {(uintptr_t)ram, ram_bytes}, .mode = UFFDIO_REGISTER_MODE_WP};
        ioctl(faults, UFFDIO_REGISTER, &wanted);
    }
}

static int read_all(int fd, void *target, size_t size)
{
    for (char *at = target; size;) {
        ssize_t got = read(fd, at, size);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return -1;
        at += got;
        size -= got;
    }
    return 0;
}

/* Receive the head of a request together with the descriptor of the file to map. */
static int receive(int sock, struct request *head)
{
    union { struct cmsghdr header; char room[CMSG_SPACE(sizeof(int))]; } control;
    struct iovec part = {head, sizeof *head};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t got;
    int fd;
    do
        got = recvmsg(sock, &message, MSG_CMSG_CLOEXEC | MSG_WAITALL);
    while (got < 0 && errno == EINTR);
    struct cmsghdr *found = CMSG_FIRSTHDR(&message);
    if (got != sizeof *head || head->magic != MAGIC || !found || found->cmsg_type != SCM_RIGHTS ||
        found->cmsg_len != CMSG_LEN(sizeof(int)))
        return -1;
    memcpy(&fd, CMSG_DATA(found), sizeof fd);
    return fd;
}

static int map_runs(int sock, int fd, uint64_t count)
{
    static struct run runs[BATCH];
    size_t page = sysconf(_SC_PAGESIZE);
    while (count) {
        size_t batch = count < BATCH ? count : BATCH;
        if (read_all(sock, runs, batch * sizeof *runs) < 0)
            return EPROTO;
        for (size_t i = 0; i < batch; i++) {
            uint64_t offset = runs[i].offset, length = runs[i].length;
            if (offset % page || length % page || !length || offset > ram_bytes || length > ram_bytes - offset)
                return EINVAL;
            void *place = (void *)syscall(SYS_mmap, ram + offset, length, ram_prot,
                                          MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, fd, (off_t)offset);
            if (place == MAP_FAILED)
                return errno;
        }
        count -= batch;
    }
    return 0;
}

static void *serve(void *argument)
{
    int sock = (int)(intptr_t)argument;
    struct request head;
    int fd = receive(sock, &head);
    if (fd >= 0) {
        uint64_t status = map_runs(sock, fd, head.count);
        close(fd);
        madvise(ram, ram_bytes, MADV_DONTDUMP);
        madvise(ram, ram_bytes, MADV_DONTFORK);
        note_writes();
        while (write(sock, &status, sizeof status) < 0 && errno == EINTR)
            ;
    }
    close(sock);
    return NULL;
}

static void listen_to(int sock)
{
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all, before;
    fcntl(sock, F_SETFD, FD_CLOEXEC);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&thread, &attributes, serve, (void *)(intptr_t)sock) != 0)
        close(sock);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
}

static int is_ram(int fd)
{
    struct stat wanted, given;
    int own = descriptor("OSGYM_RAM_FD");
    return own >= 0 && fstat(own, &wanted) == 0 && fstat(fd, &given) == 0 && wanted.st_dev == given.st_dev &&
           wanted.st_ino == given.st_ino;
}

void *mmap(void *address, size_t length, int prot, int flags, int fd, off_t offset)
{
    void *mapped = (void *)syscall(SYS_mmap, address, length, prot, flags, fd, offset);
    if (mapped == MAP_FAILED || ram || fd < 0 || offset || !(flags & MAP_PRIVATE) || !(prot & PROT_WRITE))
        return mapped;
    if (is_ram(fd)) {
        int sock = descriptor("OSGYM_RAM_CONTROL");
        ram = mapped;
        ram_bytes = length;
        ram_prot = prot;
        note_writes();
        if (sock >= 0)
            listen_to(sock);
    }
    return mapped;
}

void *mmap64(void *address, size_t length, int prot, int flags, int fd, off_t offset)
{
    return mmap(address, length, prot, flags, fd, offset);
}
