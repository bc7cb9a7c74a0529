/* Preloaded into every program: lets GTK do at once what it would do after a fixed wait.
 *
 * GTK 3 gives each of its timers a name right after it made it. The call that does so comes here first,
 * and the timers of a short list become due soon. GTK 2 has no names: its timers are known by the library
 * that makes them, by their time and by the type of what they are for. A few timers of single programs, known
 * by program and time, never come: what they would change is an answer to nothing.
 *
 * No constructor: in a program that makes no such timer nothing of this is ever run. It is linked against
 * nothing, and all that it refers to is weak: a program that lacks it starts as ever.
 * OSGYM_GTK_TIMERS=off in the environment leaves a program alone.
 *
 * timers.h is generated when the image is baked: what this image's libraries have of the list.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "timers.h"

#define GLIB "libglib-2.0.so.0"
#define GOBJECT "libgobject-2.0.so.0"
#define GTK2 "libgtk-x11-2.0.so.0"

#pragma weak dlopen
#pragma weak dlclose
#pragma weak dlsym
#pragma weak dladdr
#pragma weak getenv

static const struct named_timer {
    const char *name;
    int64_t due_ms;
} named_timers[] = {NAMED_TIMERS{NULL, 0}};

static const struct unnamed_timer {
    unsigned interval_ms;
    const char *type;
    unsigned due_ms;
} unnamed_timers[] = {UNNAMED_TIMERS{0, NULL, 0}};

#define NEVER_MS 2000000000u /* 23 days */

static const struct program_timer {
    const char *program;
    unsigned interval_ms;
} program_timers[] = {PROGRAM_TIMERS{NULL, 0}};

static int same_text(const char *left, const char *right)
{
    const volatile char *a = left, *b = right;
    while (*a && *a == *b)
        a++, b++;
    return *a == *b;
}

static int switched_on(void)
{
    static int known; /* 1: on, 2: off */
    if (!known) {
        const char *mode = getenv ? getenv("OSGYM_GTK_TIMERS") : NULL;
        known = mode && same_text(mode, "off") ? 2 : 1;
    }
    return known == 1;
}

/* A function of a library that is loaded, also when only a part of the program can see it. */
static void *in_library(const char *soname, const char *function)
{
    void *found, *library;
    if (!dlopen || !dlsym || !dlclose || !(library = dlopen(soname, RTLD_LAZY | RTLD_NOLOAD)))
        return NULL;
    found = dlsym(library, function);
    dlclose(library);
    return found;
}

static void *after_this(const char *function)
{
    return dlsym ? dlsym(RTLD_NEXT, function) : NULL;
}

/* GLib, as far as it is called here. */
struct source;
static struct glib {
    void (*set_name_by_id)(unsigned, const char *);
    struct source *(*find_source)(void *, unsigned);
    int64_t (*ready_time)(struct source *);
    void (*set_ready_time)(struct source *, int64_t);
    int64_t (*now_us)(void);
} glib;

static void find_glib(void)
{
    glib.find_source = in_library(GLIB, "g_main_context_find_source_by_id");
    glib.ready_time = in_library(GLIB, "g_source_get_ready_time");
    glib.set_ready_time = in_library(GLIB, "g_source_set_ready_time");
    glib.now_us = in_library(GLIB, "g_get_monotonic_time");
    glib.set_name_by_id = in_library(GLIB, "g_source_set_name_by_id");
    if (!glib.set_name_by_id)
        glib.set_name_by_id = after_this("g_source_set_name_by_id");
}

static void bring_forward(unsigned id, int64_t due_ms)
{
    if (!glib.find_source || !glib.ready_time || !glib.set_ready_time || !glib.now_us)
        return;
    struct source *source = glib.find_source(NULL, id); /* as GLib itself finds what it names */
    int64_t due_us = glib.now_us() + 1000 * due_ms;
    if (source && glib.ready_time(source) > due_us)
        glib.set_ready_time(source, due_us);
}

void g_source_set_name_by_id(unsigned id, const char *name)
{
    if (!glib.set_name_by_id)
        find_glib();
    if (!glib.set_name_by_id)
        return; /* a name is only for people who debug */
    glib.set_name_by_id(id, name);
    if (!name || !switched_on())
        return;
    for (const struct named_timer *known = named_timers; known->name; known++)
        if (same_text(name, known->name))
            bring_forward(id, known->due_ms);
}

/* GTK 2. GDK 3 has a function of the same name and form, which is only passed on. */
typedef unsigned add_timeout(unsigned, int (*)(void *), void *);
unsigned gdk_threads_add_timeout(unsigned interval_ms, int (*function)(void *), void *data);

/* Whether code lies in a program or library whose file has this name. */
static int is_in(const char *file, const void *address)
{
    Dl_info found;
    if (!dladdr || !dladdr(address, &found) || !found.dli_fname)
        return 0;
    const char *name = found.dli_fname;
    for (const char *at = name; *at; at++)
        if (*at == '/')
            name = at + 1;
    return same_text(name, file);
}

static int is_a(void *instance, const char *type_name)
{
    size_t (*from_name)(const char *) = in_library(GOBJECT, "g_type_from_name");
    int (*check)(void *, size_t) = in_library(GOBJECT, "g_type_check_instance_is_a");
    size_t type = from_name && check ? from_name(type_name) : 0;
    return type && instance && check(instance, type);
}

unsigned gdk_threads_add_timeout(unsigned interval_ms, int (*function)(void *), void *data)
{
    static add_timeout *next;
    if (!next)
        next = after_this("gdk_threads_add_timeout");
    if (!next)
        next = in_library("libgdk-3.so.0", "gdk_threads_add_timeout");
    if (!next)
        next = in_library("libgdk-x11-2.0.so.0", "gdk_threads_add_timeout");
    if (!next)
        return 0;
    for (const struct unnamed_timer *known = unnamed_timers; known->type; known++)
        if (interval_ms == known->interval_ms && switched_on() && is_in(GTK2, __builtin_return_address(0))
            && is_a(data, known->type)) {
            interval_ms = known->due_ms;
            break;
        }
    return next(interval_ms, function, data);
}

static unsigned own_interval_ms(unsigned interval_ms, const void *caller)
{
    for (const struct program_timer *known = program_timers; known->program; known++)
        if (interval_ms == known->interval_ms && switched_on() && is_in(known->program, caller))
            return NEVER_MS;
    return interval_ms;
}

static void *of_glib(const char *function)
{
    void *found = after_this(function);
    return found ? found : in_library(GLIB, function);
}

unsigned g_timeout_add(unsigned interval_ms, int (*function)(void *), void *data);
unsigned g_timeout_add(unsigned interval_ms, int (*function)(void *), void *data)
{
    static add_timeout *next;
    if (!next && !(next = of_glib("g_timeout_add")))
        return 0;
    return next(own_interval_ms(interval_ms, __builtin_return_address(0)), function, data);
}

typedef unsigned add_timeout_full(int, unsigned, int (*)(void *), void *, void (*)(void *));
unsigned g_timeout_add_full(int priority, unsigned interval_ms, int (*function)(void *), void *data,
                            void (*forget)(void *));
unsigned g_timeout_add_full(int priority, unsigned interval_ms, int (*function)(void *), void *data,
                            void (*forget)(void *))
{
    static add_timeout_full *next;
    if (!next && !(next = of_glib("g_timeout_add_full")))
        return 0;
    return next(priority, own_interval_ms(interval_ms, __builtin_return_address(0)), function, data, forget);
}
