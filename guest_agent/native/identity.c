/* osgym-identity: the part of a virtual machine that makes a clone another computer than its template.
 *
 * All clones wake up with the template's random state, names and clock. The guest agent hears from the
 * host who it is, and asks this resident process, which is root, to carry it out. In C, because it runs
 * once in each clone before that is ready: cold code and dirty pages are paid for by every one of them.
 *
 *   osgym-identity UID FOLDER
 *
 * Descriptor 3 is a listening SOCK_SEQPACKET socket (LISTEN_FDS=1). Callers other than root and UID are
 * sent away. One caller at a time, who stays connected: a clone finds it so. One packet in, one out:
 *   request   struct request below, every text NUL-terminated; anything else is refused whole (EINVAL)
 *   answer    struct answer: errno of each part, 0 for done, -1 for not asked, -2 for to be done on GO
 * Host name and clock are what others wait for: journal and init wake up at once when they change, and would
 * run before the clone's first answer is out. They are checked and kept, and changed by the packet GO, which
 * is answered likewise.
 * FOLDER holds `machine-id` and `boot-id`, which are mounted over the files that programs read.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/random.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define LISTEN_FD 3
#define MAGIC "OSGYMID1"
#define GO "OSGYMGO1"
#define NOT_ASKED -1
#define ON_GO -2
#define SEED_BYTES 64
#define MIN_TIME_S 1577836800LL /* 2020-01-01 */
#define MAX_TIME_S 4102444800LL /* 2100-01-01 */
#define PATIENCE_S 2
#define SLEW_NS 400000000LL /* adjtime(3) takes up to half a second */

struct request {
    char magic[8];
    int64_t time_ns;  /* since 1970, 0: leave the clock */
    char hostname[64];
    char machine_id[40];
    char boot_id[40];
    uint8_t seed[SEED_BYTES];
};

struct answer {
    char magic[8];
    int32_t seed, hostname, machine_id, boot_id, time;
};

_Static_assert(sizeof(struct request) == 224, "the guest agent packs 224 bytes");
_Static_assert(sizeof(struct answer) == 28, "the guest agent unpacks 28 bytes");

/* Opened once, in the template; or what went wrong then, as a negative errno. */
static int random_fd, machine_id_fd, boot_id_fd;

/* What GO would say now, tried once at the start: errno, or ON_GO when it may be done. */
static int hostname_answer, clock_answer;

/* Whether `text` ends within `size` and has only lower hexadecimal digits, with dashes where `dashes`. */
static bool is_hex(const char *text, size_t size, size_t length, bool dashes)
{
    if (memchr(text, 0, size) == NULL || strlen(text) != length)
        return false;
    for (size_t i = 0; i < length; i++) {
        bool dash = dashes && (i == 8 || i == 13 || i == 18 || i == 23);
        char c = text[i];
        if (dash ? c != '-' : !((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
            return false;
    }
    return true;
}

/* One label of a host name (RFC 1123). */
static bool is_hostname(const char *text, size_t size)
{
    const char *end = memchr(text, 0, size);
    if (end == NULL || end == text || text[0] == '-' || end[-1] == '-')
        return false;
    for (; *text; text++)
        if (!((*text >= 'a' && *text <= 'z') || (*text >= '0' && *text <= '9') || *text == '-'))
            return false;
    return true;
}

static bool is_valid(const struct request *r)
{
    if (memcmp(r->magic, MAGIC, sizeof r->magic) != 0)
        return false;
    if (r->time_ns != 0 && (r->time_ns / 1000000000 < MIN_TIME_S || r->time_ns / 1000000000 > MAX_TIME_S))
        return false;
    return (r->hostname[0] == 0 || is_hostname(r->hostname, sizeof r->hostname)) &&
           (r->machine_id[0] == 0 || is_hex(r->machine_id, sizeof r->machine_id, 32, false)) &&
           (r->boot_id[0] == 0 || is_hex(r->boot_id, sizeof r->boot_id, 36, true));
}

/* Mix the seed into the kernel's pool, credit it, and let the generator start from it at once. */
static int reseed(const uint8_t *seed)
{
    union {
        struct rand_pool_info info;
        uint8_t bytes[sizeof(struct rand_pool_info) + SEED_BYTES];
    } pool;
    pool.info.entropy_count = SEED_BYTES * 8;
    pool.info.buf_size = SEED_BYTES;
    memcpy(pool.info.buf, seed, SEED_BYTES);
    if (random_fd < 0)
        return -random_fd;
    bool done = ioctl(random_fd, RNDADDENTROPY, &pool.info) == 0 && ioctl(random_fd, RNDRESEEDCRNG) == 0;
    int error = done ? 0 : errno;
    explicit_bzero(&pool, sizeof pool);
    return error;
}

/* Overwrite a file in place: it is mounted over another one. All ids of a kind are equally long. */
static int overwrite(int fd, const char *text)
{
    char line[64];
    size_t length = strlen(text);
    memcpy(line, text, length);
    line[length++] = '\n';
    if (fd < 0)
        return -fd;
    ssize_t written = pwrite(fd, line, length, 0);
    return written == (ssize_t)length ? 0 : written < 0 ? errno : EIO;
}

/* A clock that lags by what a fork takes is let run faster for some minutes: setting it wakes everybody
 * who waits for an hour to strike, init first, in each child before that has answered. */
static int set_clock(int64_t time_ns)
{
    struct timespec here;
    if (clock_gettime(CLOCK_REALTIME, &here) < 0)
        return errno;
    int64_t late_ns = time_ns - (here.tv_sec * 1000000000LL + here.tv_nsec);
    if (late_ns > -SLEW_NS && late_ns < SLEW_NS) {
        struct timeval delta = {.tv_sec = 0, .tv_usec = late_ns / 1000};
        if (delta.tv_usec < 0) {
            delta.tv_sec = -1;
            delta.tv_usec += 1000000;
        }
        return adjtime(&delta, NULL) < 0 ? errno : 0;
    }
    struct timespec now = {.tv_sec = time_ns / 1000000000, .tv_nsec = time_ns % 1000000000};
    return clock_settime(CLOCK_REALTIME, &now) < 0 ? errno : 0;
}

static void carry_out(const struct request *r, struct answer *a)
{
    static const uint8_t nothing[SEED_BYTES];
    if (memcmp(r->seed, nothing, SEED_BYTES) != 0)
        a->seed = reseed(r->seed);
    if (r->machine_id[0] != 0)
        a->machine_id = overwrite(machine_id_fd, r->machine_id);
    if (r->boot_id[0] != 0)
        a->boot_id = overwrite(boot_id_fd, r->boot_id);
    if (r->hostname[0] != 0)
        a->hostname = hostname_answer;
    if (r->time_ns != 0)
        a->time = clock_answer;
}

static void go(const struct request *r, struct answer *a)
{
    if (r->hostname[0] != 0 && hostname_answer == ON_GO)
        a->hostname = sethostname(r->hostname, strlen(r->hostname)) < 0 ? errno : 0;
    if (r->time_ns != 0 && clock_answer == ON_GO)
        a->time = set_clock(r->time_ns);
}

/* One packet in, one packet out; false when there is nobody to talk to any more. */
static bool answer_one(int peer, struct request *kept)
{
    struct request request = {0};
    struct answer answer = {MAGIC, NOT_ASKED, NOT_ASKED, NOT_ASKED, NOT_ASKED, NOT_ASKED};
    ssize_t got = recv(peer, &request, sizeof request, MSG_TRUNC);
    if (got <= 0)
        return got < 0 && errno == EINTR;
    if (got == (ssize_t)sizeof request.magic && memcmp(request.magic, GO, sizeof request.magic) == 0) {
        go(kept, &answer);
        memset(kept, 0, sizeof *kept);
    } else if (got == (ssize_t)sizeof request && is_valid(&request)) {
        carry_out(&request, &answer);
        explicit_bzero(request.seed, sizeof request.seed);
        *kept = request;
    } else {
        answer.seed = answer.hostname = answer.machine_id = answer.boot_id = answer.time = EINVAL;
        explicit_bzero(&request, sizeof request);
    }
    return send(peer, &answer, sizeof answer, MSG_NOSIGNAL) == (ssize_t)sizeof answer;
}

static bool may_ask(int peer, uid_t allowed)
{
    struct ucred who;
    socklen_t size = sizeof who;
    if (getsockopt(peer, SOL_SOCKET, SO_PEERCRED, &who, &size) < 0)
        return false;
    return who.uid == 0 || who.uid == allowed;
}

static int open_to_write(int folder, const char *name)
{
    int fd = openat(folder, name, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: osgym-identity UID FOLDER\n");
        return 2;
    }
    uid_t allowed = (uid_t)strtoul(argv[1], NULL, 10);
    int folder = open(argv[2], O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) {
        perror(argv[2]);
        return 1;
    }
    random_fd = open_to_write(AT_FDCWD, "/dev/urandom");
    machine_id_fd = open_to_write(folder, "machine-id");
    boot_id_fd = open_to_write(folder, "boot-id");
    close(folder);
    char name[65] = "";
    struct timeval nothing = {0};
    bool may_name = gethostname(name, sizeof name - 1) == 0 && sethostname(name, strlen(name)) == 0;
    hostname_answer = may_name ? ON_GO : errno;
    clock_answer = adjtime(&nothing, NULL) == 0 ? ON_GO : errno;
    for (;;) {
        int peer = accept4(LISTEN_FD, NULL, NULL, SOCK_CLOEXEC);
        if (peer < 0) {
            if (errno == EINTR || errno == ECONNABORTED)
                continue;
            perror("accept");
            return 1;
        }
        struct timeval patience = {.tv_sec = PATIENCE_S};
        setsockopt(peer, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
        struct request kept = {0};
        if (may_ask(peer, allowed))
            while (answer_one(peer, &kept))
                ;
        close(peer);
    }
}
