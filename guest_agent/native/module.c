/* osgym_guest._native: the native core for Python, by the limited API, so that one build serves all. */
#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030A0000
#include <Python.h>

#include "og.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <xcb/xcb.h>
#include <xcb/xtest.h>

typedef struct {
    PyObject_HEAD
    og_display *d;
} DisplayObject;

static PyObject *DisplayGone, *DisplayError;

static PyObject *fail(int status) {
    switch (status) {
    case OG_GONE: PyErr_SetString(DisplayGone, "the X server is gone"); break;
    case OG_NO_DISPLAY: PyErr_SetString(DisplayGone, "there is no X server to connect to"); break;
    case OG_UNSUPPORTED: PyErr_SetString(DisplayError, "the X server lacks something that is needed"); break;
    case OG_NO_MEMORY: PyErr_NoMemory(); break;
    default: PyErr_SetString(DisplayError, "the X server or the system refused a request"); break;
    }
    return NULL;
}

static og_display *display_of(PyObject *self) {
    og_display *d = ((DisplayObject *)self)->d;
    if (!d) PyErr_SetString(DisplayGone, "the display is closed");
    return d;
}

#define DISPLAY_OR_RETURN(self)              \
    og_display *d = display_of(self);        \
    if (!d) return NULL

static PyObject *none_or_fail(int status) {
    if (status < 0) return fail(status);
    Py_RETURN_NONE;
}

static int Display_init(PyObject *self, PyObject *args, PyObject *kwargs) {
    const char *name = NULL, *fbdir = NULL;
    static char *names[] = {"name", "fbdir", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|zz", names, &name, &fbdir)) return -1;
    DisplayObject *object = (DisplayObject *)self;
    if (object->d) {
        PyErr_SetString(DisplayError, "the display is open already");
        return -1;
    }
    og_display *d = calloc(1, sizeof *d);
    if (!d) {
        PyErr_NoMemory();
        return -1;
    }
    int status;
    Py_BEGIN_ALLOW_THREADS
    status = og_open(d, name, fbdir);
    Py_END_ALLOW_THREADS
    if (status) {
        og_close(d);
        free(d);
        fail(status);
        return -1;
    }
    object->d = d;
    return 0;
}

static PyObject *Display_close(PyObject *self, PyObject *unused) {
    (void)unused;
    DisplayObject *object = (DisplayObject *)self;
    if (object->d) {
        og_close(object->d);
        free(object->d);
        object->d = NULL;
    }
    Py_RETURN_NONE;
}

static void Display_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    DisplayObject *object = (DisplayObject *)self;
    if (object->d) {
        og_close(object->d);
        free(object->d);
    }
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyObject *Display_fileno(PyObject *self, PyObject *unused) {
    (void)unused;
    DISPLAY_OR_RETURN(self);
    return PyLong_FromLong(xcb_get_file_descriptor(d->c));
}

static PyObject *Display_size(PyObject *self, PyObject *unused) {
    (void)unused;
    DISPLAY_OR_RETURN(self);
    return Py_BuildValue("(ii)", d->width, d->height);
}

static PyObject *Display_uses_fbdir(PyObject *self, PyObject *unused) {
    (void)unused;
    DISPLAY_OR_RETURN(self);
    return PyBool_FromLong(d->frame.is_fbdir);
}

static PyObject *Display_sync(PyObject *self, PyObject *unused) {
    (void)unused;
    DISPLAY_OR_RETURN(self);
    int status;
    Py_BEGIN_ALLOW_THREADS
    status = og_sync(d);
    Py_END_ALLOW_THREADS
    return none_or_fail(status);
}

/* ---- input ---- */

static PyObject *fake(og_display *d, uint8_t type, uint8_t detail, int x, int y) {
    xcb_test_fake_input(d->c, type, detail, XCB_CURRENT_TIME, type == XCB_MOTION_NOTIFY ? d->root : XCB_NONE,
                        (int16_t)x, (int16_t)y, 0);
    return none_or_fail(xcb_connection_has_error(d->c) ? OG_GONE : OG_OK);
}

static PyObject *Display_key(PyObject *self, PyObject *args) {
    int code, down;
    DISPLAY_OR_RETURN(self);
    if (!PyArg_ParseTuple(args, "ip", &code, &down)) return NULL;
    return fake(d, down ? XCB_KEY_PRESS : XCB_KEY_RELEASE, (uint8_t)code, 0, 0);
}

static PyObject *Display_button(PyObject *self, PyObject *args) {
    int number, down;
    DISPLAY_OR_RETURN(self);
    if (!PyArg_ParseTuple(args, "ip", &number, &down)) return NULL;
    return fake(d, down ? XCB_BUTTON_PRESS : XCB_BUTTON_RELEASE, (uint8_t)number, 0, 0);
}

static PyObject *Display_motion(PyObject *self, PyObject *args) {
    int x, y;
    DISPLAY_OR_RETURN(self);
    if (!PyArg_ParseTuple(args, "ii", &x, &y)) return NULL;
    return fake(d, XCB_MOTION_NOTIFY, 0, x, y);
}

static PyObject *Display_pointer(PyObject *self, PyObject *unused) {
    (void)unused;
    DISPLAY_OR_RETURN(self);
    xcb_query_pointer_reply_t *reply = xcb_query_pointer_reply(d->c, xcb_query_pointer(d->c, d->root), NULL);
    if (!reply) return fail(OG_GONE);
    PyObject *result = Py_BuildValue("(iii)", reply->root_x, reply->root_y, reply->mask);
    free(reply);
    return result;
}

static PyObject *Display_keymap(PyObject *self, PyObject *unused) {
    (void)unused;
    DISPLAY_OR_RETURN(self);
    const xcb_setup_t *setup = xcb_get_setup(d->c);
    int first = setup->min_keycode, count = setup->max_keycode - setup->min_keycode + 1;
    d->keymap_stale = false;
    xcb_get_keyboard_mapping_reply_t *reply = xcb_get_keyboard_mapping_reply(
        d->c, xcb_get_keyboard_mapping(d->c, (uint8_t)first, (uint8_t)count), NULL);
    if (!reply) return fail(OG_GONE);
    const xcb_keysym_t *symbols = xcb_get_keyboard_mapping_keysyms(reply);
    int per = reply->keysyms_per_keycode;
    PyObject *rows = PyList_New(0);
    for (int code = 0; rows && code < count; code++) {
        PyObject *row = PyList_New(0);
        for (int i = 0; row && i < per; i++) {
            PyObject *symbol = PyLong_FromUnsignedLong(symbols[code * per + i]);
            if (!symbol || PyList_Append(row, symbol)) Py_CLEAR(row);
            Py_XDECREF(symbol);
        }
        if (!row || PyList_Append(rows, row)) Py_CLEAR(rows);
        Py_XDECREF(row);
    }
    free(reply);
    return rows ? Py_BuildValue("(iN)", first, rows) : NULL;
}

/* Codes of the keys that are modifiers. */
static PyObject *Display_modifier_codes(PyObject *self, PyObject *unused) {
    (void)unused;
    DISPLAY_OR_RETURN(self);
    xcb_get_modifier_mapping_reply_t *reply =
        xcb_get_modifier_mapping_reply(d->c, xcb_get_modifier_mapping(d->c), NULL);
    if (!reply) return fail(OG_GONE);
    PyObject *codes = PyBytes_FromStringAndSize((const char *)xcb_get_modifier_mapping_keycodes(reply),
                                                xcb_get_modifier_mapping_keycodes_length(reply));
    free(reply);
    return codes;
}

static PyObject *Display_keymap_stale(PyObject *self, PyObject *unused) {
    (void)unused;
    DISPLAY_OR_RETURN(self);
    return PyBool_FromLong(d->keymap_stale);
}

static PyObject *Display_remap(PyObject *self, PyObject *args) {
    int first, per;
    PyObject *list;
    DISPLAY_OR_RETURN(self);
    if (!PyArg_ParseTuple(args, "iiO!", &first, &per, &PyList_Type, &list)) return NULL;
    xcb_keysym_t symbols[256 * 4];
    Py_ssize_t count = PyList_Size(list);
    if (per < 1 || per > 4 || count < per || count > 256 * 4 || count % per) {
        PyErr_SetString(PyExc_ValueError, "the symbols do not fill whole keys");
        return NULL;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        symbols[i] = (xcb_keysym_t)PyLong_AsUnsignedLong(PyList_GetItem(list, i));
        if (PyErr_Occurred()) return NULL;
    }
    xcb_change_keyboard_mapping(d->c, (uint8_t)(count / per), (uint8_t)first, (uint8_t)per, symbols);
    return none_or_fail(xcb_connection_has_error(d->c) ? OG_GONE : OG_OK);
}

/* ---- settle and watch ---- */

static PyObject *Display_begin(PyObject *self, PyObject *unused) {
    (void)unused;
    DISPLAY_OR_RETURN(self);
    int status;
    Py_BEGIN_ALLOW_THREADS
    status = og_settle_begin(d);
    Py_END_ALLOW_THREADS
    return none_or_fail(status);
}

static int read_horizons(PyObject *list, og_horizon *horizons, int capacity) {
    Py_ssize_t count = PyList_Size(list);
    if (count > capacity) {
        PyErr_SetString(PyExc_ValueError, "too many horizons");
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        const char *name;
        og_horizon *h = &horizons[i];
        if (!PyArg_ParseTuple(PyList_GetItem(list, i), "sddd", &name, &h->horizon_ms, &h->change_horizon_ms,
                              &h->window_horizon_ms))
            return -1;
        snprintf(horizons[i].name, sizeof horizons[i].name, "%s", name);
    }
    return (int)count;
}

/* The numbers of a rule, all of them and no others. */
static bool read_numbers(PyObject *given, og_settle_rule *rule) {
    Py_ssize_t count = 0;
#define READ(name)                                                            \
    {                                                                         \
        PyObject *value = PyDict_GetItemString(given, #name);                 \
        if (!value) PyErr_SetString(PyExc_KeyError, #name);                   \
        else rule->name = PyFloat_AsDouble(value);                            \
        if (PyErr_Occurred()) return false;                                   \
        count++;                                                              \
    }
    OG_RULE_NUMBERS(READ)
#undef READ
    if (PyDict_Size(given) == count) return true;
    PyErr_SetString(PyExc_ValueError, "a settle rule has numbers that nobody reads");
    return false;
}

static PyObject *Display_settle(PyObject *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"since_ns", "numbers", "horizons", "trace_path", NULL};
    enum { MAX_HORIZONS = 64 };
    og_horizon horizons[MAX_HORIZONS];
    og_settle_rule rule = {0};
    unsigned long long since;
    PyObject *numbers, *list;
    const char *path;
    DISPLAY_OR_RETURN(self);
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "KO!O!z", names, &since, &PyDict_Type, &numbers, &PyList_Type,
                                     &list, &path) ||
        !read_numbers(numbers, &rule))
        return NULL;
    rule.horizons = horizons;
    rule.horizon_count = read_horizons(list, horizons, MAX_HORIZONS);
    if (rule.horizon_count < 0) return NULL;
    og_settled settled;
    int status;
    Py_BEGIN_ALLOW_THREADS
    rule.trace = path ? fopen(path, "ae") : NULL;
    status = og_settle(d, &rule, since, &settled);
    if (rule.trace) fclose(rule.trace);
    Py_END_ALLOW_THREADS
    if (status) return fail(status);
    return Py_BuildValue("(iddid)", (int)settled.reason, settled.wait_ms, settled.last_change_ms, settled.turns,
                         settled.cpu_us);
}

static PyObject *Display_cancel(PyObject *self, PyObject *unused) {
    (void)unused;
    DISPLAY_OR_RETURN(self);
    d->cancel = 1;
    Py_RETURN_NONE;
}

static PyObject *Display_watch(PyObject *self, PyObject *unused) {
    (void)unused;
    DISPLAY_OR_RETURN(self);
    int seen;
    Py_BEGIN_ALLOW_THREADS
    seen = og_drain(d, OG_WATCH);
    Py_END_ALLOW_THREADS
    if (seen < 0) return fail(seen);
    return Py_BuildValue("(iKK)", seen, (unsigned long long)d->first_change_ns,
                         (unsigned long long)d->last_change_ns);
}

static PyObject *Display_watch_anew(PyObject *self, PyObject *unused) {
    (void)unused;
    DISPLAY_OR_RETURN(self);
    d->first_change_ns = d->last_change_ns = 0;
    Py_RETURN_NONE;
}

static PyObject *Display_windows(PyObject *self, PyObject *unused) {
    (void)unused;
    DISPLAY_OR_RETURN(self);
    int status = OG_OK;
    Py_BEGIN_ALLOW_THREADS
    if (d->windows_stale) status = og_refresh_windows(d);
    Py_END_ALLOW_THREADS
    if (status) return fail(status);
    int docks = 0, desktops = 0;
    for (int i = 0; i < d->window_count; i++) {
        docks += d->windows[i].type == OG_WINDOW_DOCK;
        desktops += d->windows[i].type == OG_WINDOW_DESKTOP;
    }
    return Py_BuildValue("(Iiii)", (unsigned)d->wm_window, d->window_count, docks, desktops);
}

/* The active window, whether it is a dialog, and whether each key that acts on its text must be awaited: a terminal's
   program reads it, or LibreOffice does. */
static PyObject *Display_receiver(PyObject *self, PyObject *unused) {
    (void)unused;
    DISPLAY_OR_RETURN(self);
    int status = OG_OK;
    bool awaited = true, dialog = false;
    Py_BEGIN_ALLOW_THREADS
    if (d->windows_stale) status = og_refresh_windows(d);
    int pid = og_pid_of(d, d->active_window);
    if (pid) awaited = og_procs_has_terminal(&d->procs, pid) || og_runs_enter_later(pid);
    Py_END_ALLOW_THREADS
    if (status) return fail(status);
    for (int i = 0; i < d->window_count; i++)
        dialog |= d->windows[i].id == d->active_window && d->windows[i].type == OG_WINDOW_DIALOG;
    return Py_BuildValue("(INN)", (unsigned)d->active_window, PyBool_FromLong(dialog), PyBool_FromLong(awaited));
}

/* Programs that the agent starts are children of this process, not of its own. */
static PyObject *Display_starter(PyObject *self, PyObject *args) {
    int pid;
    DISPLAY_OR_RETURN(self);
    if (!PyArg_ParseTuple(args, "i", &pid)) return NULL;
    d->procs.starter_pid = pid;
    Py_RETURN_NONE;
}

static PyObject *Display_follow(PyObject *self, PyObject *args) {
    PyObject *list;
    double burner_s, share;
    DISPLAY_OR_RETURN(self);
    if (!PyArg_ParseTuple(args, "ddO!", &burner_s, &share, &PyList_Type, &list)) return NULL;
    d->procs.burner_s = burner_s;
    d->procs.burner_share = share;
    d->procs.thread_name_count = 0;
    for (Py_ssize_t i = 0; i < PyList_Size(list) && i < OG_MAX_NAMES; i++) {
        PyObject *encoded = PyUnicode_AsUTF8String(PyList_GetItem(list, i));
        if (!encoded) return NULL;
        char *target = d->procs.thread_names[d->procs.thread_name_count++];
        snprintf(target, sizeof d->procs.thread_names[0], "%s", PyBytes_AsString(encoded));
        Py_DECREF(encoded);
    }
    Py_RETURN_NONE;
}

/* ---- frames ---- */

static PyObject *Display_capture(PyObject *self, PyObject *unused) {
    (void)unused;
    DISPLAY_OR_RETURN(self);
    int status;
    Py_BEGIN_ALLOW_THREADS
    status = og_capture(d);
    Py_END_ALLOW_THREADS
    return none_or_fail(status);
}

static PyObject *frame_hash(PyObject *self, uint64_t (*hash_of)(og_frame *)) {
    DISPLAY_OR_RETURN(self);
    unsigned long long hash;
    Py_BEGIN_ALLOW_THREADS
    hash = hash_of(&d->frame);
    Py_END_ALLOW_THREADS
    char text[17];
    snprintf(text, sizeof text, "%016llx", hash);
    return PyUnicode_FromString(text);
}

static PyObject *Display_frame_hash(PyObject *self, PyObject *unused) {
    (void)unused;
    return frame_hash(self, og_frame_hash);
}

static PyObject *Display_frame_hash_unmasked(PyObject *self, PyObject *unused) {
    (void)unused;
    return frame_hash(self, og_frame_hash_unmasked);
}

static PyObject *Display_masks(PyObject *self, PyObject *args) {
    DISPLAY_OR_RETURN(self);
    int x, y;
    if (!PyArg_ParseTuple(args, "ii", &x, &y)) return NULL;
    return PyBool_FromLong(og_frame_masks(&d->frame, x, y));
}

static int read_region(og_display *d, PyObject *args, og_box *box) {
    int x, y, w, h;
    if (!PyArg_ParseTuple(args, "iiii", &x, &y, &w, &h)) return -1;
    if (x < 0 || y < 0 || w < 1 || h < 1 || x + w > d->width || y + h > d->height) {
        PyErr_SetString(PyExc_ValueError, "the region lies outside the screen");
        return -1;
    }
    *box = (og_box){x, y, x + w, y + h};
    return 0;
}

static PyObject *Display_png(PyObject *self, PyObject *args) {
    DISPLAY_OR_RETURN(self);
    og_box box;
    bool whole = PyTuple_Size(args) == 0;
    if (!whole && read_region(d, args, &box)) return NULL;
    uint8_t *bytes = NULL;
    long length;
    Py_BEGIN_ALLOW_THREADS
    length = whole ? og_png_frame(&d->png, &d->frame, &bytes) : og_png_region(&d->png, &d->frame, box, &bytes);
    Py_END_ALLOW_THREADS
    if (length < 0) return fail((int)length);
    PyObject *result = PyBytes_FromStringAndSize((const char *)bytes, length);
    free(bytes);
    return result;
}

static PyObject *Display_pixels(PyObject *self, PyObject *args) {
    DISPLAY_OR_RETURN(self);
    og_box b;
    if (read_region(d, args, &b)) return NULL;
    size_t row = (size_t)(b.x1 - b.x0) * 4;
    PyObject *result = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(row * (size_t)(b.y1 - b.y0)));
    if (!result) return NULL;
    char *out = PyBytes_AsString(result);
    for (int y = b.y0; y < b.y1; y++, out += row)
        memcpy(out, d->frame.shadow + (size_t)y * (size_t)d->width + b.x0, row);
    return result;
}

static PyMethodDef Display_methods[] = {
    {"close", Display_close, METH_NOARGS, NULL},
    {"fileno", Display_fileno, METH_NOARGS, NULL},
    {"size", Display_size, METH_NOARGS, NULL},
    {"uses_fbdir", Display_uses_fbdir, METH_NOARGS, NULL},
    {"sync", Display_sync, METH_NOARGS, NULL},
    {"key", Display_key, METH_VARARGS, NULL},
    {"button", Display_button, METH_VARARGS, NULL},
    {"motion", Display_motion, METH_VARARGS, NULL},
    {"pointer", Display_pointer, METH_NOARGS, NULL},
    {"keymap", Display_keymap, METH_NOARGS, NULL},
    {"modifier_codes", Display_modifier_codes, METH_NOARGS, NULL},
    {"keymap_stale", Display_keymap_stale, METH_NOARGS, NULL},
    {"remap", Display_remap, METH_VARARGS, NULL},
    {"begin", Display_begin, METH_NOARGS, NULL},
    {"settle", (PyCFunction)(void (*)(void))Display_settle, METH_VARARGS | METH_KEYWORDS, NULL},
    {"cancel", Display_cancel, METH_NOARGS, NULL},
    {"watch", Display_watch, METH_NOARGS, NULL},
    {"watch_anew", Display_watch_anew, METH_NOARGS, NULL},
    {"windows", Display_windows, METH_NOARGS, NULL},
    {"receiver", Display_receiver, METH_NOARGS, NULL},
    {"starter", Display_starter, METH_VARARGS, NULL},
    {"follow", Display_follow, METH_VARARGS, NULL},
    {"capture", Display_capture, METH_NOARGS, NULL},
    {"frame_hash", Display_frame_hash, METH_NOARGS, NULL},
    {"frame_hash_unmasked", Display_frame_hash_unmasked, METH_NOARGS, NULL},
    {"masks", Display_masks, METH_VARARGS, NULL},
    {"png", Display_png, METH_VARARGS, NULL},
    {"pixels", Display_pixels, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot Display_slots[] = {
    {Py_tp_init, Display_init},
    {Py_tp_dealloc, Display_dealloc},
    {Py_tp_methods, Display_methods},
    {Py_tp_new, PyType_GenericNew},
    {0, NULL},
};

static PyType_Spec Display_spec = {
    "osgym_guest._native.Display", sizeof(DisplayObject), 0, Py_TPFLAGS_DEFAULT, Display_slots,
};

static PyObject *now_ns(PyObject *self, PyObject *unused) {
    (void)self;
    (void)unused;
    return PyLong_FromUnsignedLongLong(og_now());
}

/* The kernel's monotonic and wall clocks, which go on while the desktop's stand still (view.c). */
static PyObject *kernel_times_ns(PyObject *self, PyObject *unused) {
    (void)self;
    (void)unused;
    struct timespec mono = {0}, wall = {0};
    long long mono_ns, later_ns;
    do { /* at the same time, as far as that goes */
        syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &mono);
        mono_ns = mono.tv_sec * 1000000000LL + mono.tv_nsec;
        syscall(SYS_clock_gettime, CLOCK_REALTIME, &wall);
        syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &mono);
        later_ns = mono.tv_sec * 1000000000LL + mono.tv_nsec;
    } while (later_ns - mono_ns > 10000);
    return Py_BuildValue("LL", later_ns, wall.tv_sec * 1000000000LL + wall.tv_nsec);
}

/* No process of the same user may look into this one, or trace it. */
static PyObject *forbid_inspection(PyObject *self, PyObject *unused) {
    (void)self;
    (void)unused;
    if (prctl(PR_SET_DUMPABLE, 0)) return PyErr_SetFromErrno(PyExc_OSError);
    Py_RETURN_NONE;
}

static PyMethodDef module_methods[] = {
    {"forbid_inspection", forbid_inspection, METH_NOARGS, NULL},
    {"now_ns", now_ns, METH_NOARGS, NULL},
    {"kernel_times_ns", kernel_times_ns, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_native", NULL, -1, module_methods, NULL, NULL, NULL, NULL,
};

/* Frames are megabytes and short-lived: give their memory back at once, and keep one heap. */
static void tune_malloc(void) {
#ifdef M_ARENA_MAX
    mallopt(M_ARENA_MAX, 1);
    mallopt(M_MMAP_THRESHOLD, 1 << 20);
    mallopt(M_TRIM_THRESHOLD, 1 << 20);
#endif
}

PyMODINIT_FUNC PyInit__native(void) {
    tune_malloc();
    PyObject *m = PyModule_Create(&module);
    if (!m) return NULL;
    DisplayGone = PyErr_NewException("osgym_guest._native.DisplayGone", PyExc_ConnectionError, NULL);
    DisplayError = PyErr_NewException("osgym_guest._native.DisplayError", PyExc_RuntimeError, NULL);
    PyObject *type = PyType_FromSpec(&Display_spec);
    if (!DisplayGone || !DisplayError || !type || PyModule_AddObjectRef(m, "DisplayGone", DisplayGone) ||
        PyModule_AddObjectRef(m, "DisplayError", DisplayError) || PyModule_AddObjectRef(m, "Display", type)) {
        Py_DECREF(m);
        return NULL;
    }
    Py_DECREF(type);
    return m;
}
