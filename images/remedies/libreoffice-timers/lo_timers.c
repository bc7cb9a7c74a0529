/* Preloaded into LibreOffice: lets tool bars and status bar follow at once instead of 300 ms later.
 *
 * sites.h is generated when the image is baked: where the timers are in exactly the libraries that
 * the image holds. Nothing is touched unless build id and bytes are the expected ones, and then
 * either all sites are changed or none. OSGYM_LO_TIMERS=off in the environment leaves LibreOffice
 * alone; OSGYM_LO_TIMERS=report prints one line about what was done.
 *
 * It is linked against nothing, so it does not depend on the C library it was compiled beside: the
 * few functions below come from the process it is loaded into.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sites.h"

#define PAGE_BYTES ((uintptr_t)4096)
#define NAME_OFFSET 16
#define ARRAY_LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static const unsigned char core_build_id[] = CORE_BUILD_ID;

/* A place in the core library: what stands there, and what shall. */
static const struct site {
    uintptr_t offset;
    size_t length;
    unsigned char before[7], after[7];
} sites[] = {CORE_SITES};

static const struct named_timer {
    const char *name;
    uint64_t delay_ms;
} named_timers[] = {NAMED_TIMERS{NULL, 0}};
static int enabled;

struct object {
    const unsigned char *build_id;
    size_t build_id_bytes;
    uintptr_t base;
};

static int equal(const void *left, const void *right, size_t bytes)
{
    const volatile unsigned char *a = left, *b = right;
    for (size_t i = 0; i < bytes; i++)
        if (a[i] != b[i])
            return 0;
    return 1;
}

static size_t length(const char *text)
{
    size_t bytes = 0;
    while (((const volatile char *)text)[bytes])
        bytes++;
    return bytes;
}

/* dl_iterate_phdr callback: stops at the object that carries the wanted build id. */
static int has_build_id(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct object *wanted = argument;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type != PT_NOTE || segment->p_memsz < sizeof(ElfW(Nhdr)) + 4 + wanted->build_id_bytes)
            continue;
        const ElfW(Nhdr) *note = (const void *)(info->dlpi_addr + segment->p_vaddr);
        if (note->n_type != NT_GNU_BUILD_ID || note->n_namesz != 4 || note->n_descsz != wanted->build_id_bytes)
            continue;
        if (equal((const char *)(note + 1) + 4, wanted->build_id, wanted->build_id_bytes)) {
            wanted->base = info->dlpi_addr;
            return 1;
        }
    }
    return 0;
}

static int overwrite(uintptr_t address, const unsigned char *bytes, size_t count)
{
    uintptr_t first = address & ~(PAGE_BYTES - 1);
    size_t span = ((address + count + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1)) - first;
    if (mprotect((void *)first, span, PROT_READ | PROT_WRITE | PROT_EXEC))
        return 0;
    for (size_t i = 0; i < count; i++)
        ((volatile unsigned char *)address)[i] = bytes[i];
    return !mprotect((void *)first, span, PROT_READ | PROT_EXEC);
}

/* Returns how many sites were changed: all or none, short of a page that refuses to be writable. */
static unsigned patch_core(uintptr_t base)
{
    unsigned done = 0;
    for (size_t i = 0; i < ARRAY_LENGTH(sites); i++)
        if (!equal((void *)(base + sites[i].offset), sites[i].before, sites[i].length))
            return 0;
    for (size_t i = 0; i < ARRAY_LENGTH(sites); i++)
        done += overwrite(base + sites[i].offset, sites[i].after, sites[i].length);
    return done;
}

static void report(unsigned done)
{
    char line[] = "lo-timers: 00 of 00 sites changed\n";
    line[11] = (char)('0' + done / 10);
    line[12] = (char)('0' + done % 10);
    line[17] = (char)('0' + ARRAY_LENGTH(sites) / 10);
    line[18] = (char)('0' + ARRAY_LENGTH(sites) % 10);
    if (write(2, line, sizeof line - 1) < 0)
        return;
}

/* What LibreOffice starts (a browser, a helper) shall not carry this library. */
static void leave_environment(void)
{
    const char *preload = getenv("LD_PRELOAD");
    if (preload && length(preload) == sizeof INSTALLED_AS - 1 && equal(preload, INSTALLED_AS, sizeof INSTALLED_AS - 1))
        unsetenv("LD_PRELOAD");
}

__attribute__((constructor)) static void start(void)
{
    struct object core = {core_build_id, sizeof core_build_id, 0};
    const char *mode = getenv("OSGYM_LO_TIMERS");
    if (!dl_iterate_phdr(has_build_id, &core))
        return;
    leave_environment();
    if (mode && length(mode) == 3 && equal(mode, "off", 3))
        return;
    unsigned done = patch_core(core.base);
    enabled = done == ARRAY_LENGTH(sites);
    if (mode && length(mode) == 6 && equal(mode, "report", 6))
        report(done);
}

/* The libraries of Calc, Writer and Impress are loaded later and call this through their PLT; the core
 * library calls its own. A task keeps its name, a literal, at NAME_OFFSET (checked at bake). */
typedef void set_timeout(void *, uint64_t);
void _ZN5Timer10SetTimeoutEm(void *timer, uint64_t timeout_ms);

static int same_text(const char *left, const char *right)
{
    return length(left) == length(right) && equal(left, right, length(left));
}

void _ZN5Timer10SetTimeoutEm(void *timer, uint64_t timeout_ms)
{
    static set_timeout *next;
    if (!next)
        next = (set_timeout *)dlsym(RTLD_NEXT, "_ZN5Timer10SetTimeoutEm");
    if (enabled) {
        const char *name = *(const char *const *)((const char *)timer + NAME_OFFSET);
        for (const struct named_timer *known = named_timers; name && known->name; known++)
            if (timeout_ms == known->delay_ms && same_text(name, known->name)) {
                timeout_ms = SHORT_DELAY_MS;
                break;
            }
    }
    next(timer, timeout_ms);
}
