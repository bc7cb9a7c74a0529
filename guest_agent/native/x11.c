/* The connection to the X server: events, windows, clients, capture. */
#define _GNU_SOURCE
#include "og.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>
#include <xcb/damage.h>
#include <xcb/shm.h>
#include <xcb/xcbext.h>
#include <xcb/xfixes.h>
#include <xcb/xtest.h>

static int broken(og_display *d) {
    return !d->c || xcb_connection_has_error(d->c) ? OG_GONE : OG_FAILED;
}

static const char *const atom_names[OG_ATOM_COUNT] = {
    "_NET_SUPPORTING_WM_CHECK", "_NET_CLIENT_LIST", "_NET_ACTIVE_WINDOW", "_NET_WM_WINDOW_TYPE",
    "_NET_WM_WINDOW_TYPE_DOCK", "_NET_WM_WINDOW_TYPE_DESKTOP", "_NET_WM_WINDOW_TYPE_DIALOG",
};

static int intern_atoms(og_display *d) {
    xcb_intern_atom_cookie_t cookies[OG_ATOM_COUNT];
    for (int i = 0; i < OG_ATOM_COUNT; i++)
        cookies[i] = xcb_intern_atom(d->c, 0, (uint16_t)strlen(atom_names[i]), atom_names[i]);
    for (int i = 0; i < OG_ATOM_COUNT; i++) {
        xcb_intern_atom_reply_t *reply = xcb_intern_atom_reply(d->c, cookies[i], NULL);
        if (!reply) return broken(d);
        d->atoms[i] = reply->atom;
        free(reply);
    }
    return OG_OK;
}

/* ---- the X-Resource extension, two requests of it ---- */

static xcb_extension_t xres_extension = {"X-Resource", 0};
enum { XRES_QUERY_CLIENT_IDS = 4, XRES_LOCAL_CLIENT_PID = 2 };

typedef struct {
    uint8_t major, minor;
    uint16_t length;
    uint32_t spec_count, client, mask;
} xres_query_ids;

typedef struct {
    uint8_t type, pad;
    uint16_t sequence;
    uint32_t length, id_count;
} xres_ids_reply;

int og_refresh_clients(og_display *d) {
    if (!d->has_xres) return OG_OK;
    xres_query_ids request = {.spec_count = 1, .client = 0, .mask = XRES_LOCAL_CLIENT_PID};
    struct iovec parts[4] = {{0}, {0}, {&request, sizeof request}, {NULL, 0}};
    xcb_protocol_request_t protocol = {1, &xres_extension, XRES_QUERY_CLIENT_IDS, 0};
    unsigned sequence = xcb_send_request(d->c, XCB_REQUEST_CHECKED, parts + 2, &protocol);
    xcb_generic_error_t *error = NULL;
    xres_ids_reply *reply = xcb_wait_for_reply(d->c, sequence, &error);
    if (!reply) {
        free(error);
        return broken(d);
    }
    const uint32_t *word = (const uint32_t *)(const void *)((uint8_t *)reply + 32);
    const uint32_t *end = word + reply->length;
    int count = 0;
    for (uint32_t i = 0; i < reply->id_count && word + 3 <= end; i++) {
        uint32_t base = word[0], words = word[2] / 4;
        word += 3;
        if (words < 1 || word + words > end) break;
        if (count < OG_MAX_CLIENTS && word[0] != 0)
            d->procs.clients[count++] = (og_client){base, (int)word[0]};
        word += words;
    }
    free(reply);
    d->procs.client_count = count;
    d->procs.clients_changed = true;
    return OG_OK;
}

int og_pid_of(const og_display *d, xcb_window_t window) {
    for (int i = 0; i < d->procs.client_count; i++)
        if ((window & ~d->procs.client_mask) == d->procs.clients[i].base) return d->procs.clients[i].pid;
    return 0;
}

/* ---- opening ---- */

static int open_extensions(og_display *d) {
    xcb_prefetch_extension_data(d->c, &xcb_damage_id);
    xcb_prefetch_extension_data(d->c, &xcb_xfixes_id);
    xcb_prefetch_extension_data(d->c, &xcb_test_id);
    xcb_prefetch_extension_data(d->c, &xcb_shm_id);
    xcb_prefetch_extension_data(d->c, &xres_extension);
    const xcb_query_extension_reply_t *damage = xcb_get_extension_data(d->c, &xcb_damage_id);
    const xcb_query_extension_reply_t *xfixes = xcb_get_extension_data(d->c, &xcb_xfixes_id);
    const xcb_query_extension_reply_t *test = xcb_get_extension_data(d->c, &xcb_test_id);
    const xcb_query_extension_reply_t *xres = xcb_get_extension_data(d->c, &xres_extension);
    if (!damage || !xfixes || !test) return broken(d);
    if (!damage->present || !xfixes->present || !test->present) return OG_UNSUPPORTED;
    d->damage_event = damage->first_event;
    d->xfixes_event = xfixes->first_event;
    d->has_xres = xres && xres->present;
    xcb_damage_query_version_cookie_t dv = xcb_damage_query_version(d->c, 1, 1);
    xcb_xfixes_query_version_cookie_t xv = xcb_xfixes_query_version(d->c, 4, 0);
    free(xcb_damage_query_version_reply(d->c, dv, NULL));
    free(xcb_xfixes_query_version_reply(d->c, xv, NULL));
    return OG_OK;
}

static int find_server(og_display *d) {
    struct ucred credentials;
    socklen_t size = sizeof credentials;
    if (!getsockopt(xcb_get_file_descriptor(d->c), SOL_SOCKET, SO_PEERCRED, &credentials, &size))
        d->procs.server_pid = credentials.pid;
    return OG_OK;
}

int og_open(og_display *d, const char *name, const char *fbdir) {
    memset(d, 0, sizeof *d);
    d->frame.shm_id = -1;
    d->procs.fd_loadavg = -1;
    int screen_number = 0;
    d->c = xcb_connect(name, &screen_number);
    if (xcb_connection_has_error(d->c)) return OG_NO_DISPLAY;
    xcb_screen_iterator_t screens = xcb_setup_roots_iterator(xcb_get_setup(d->c));
    for (; screens.rem && screen_number > 0; screen_number--) xcb_screen_next(&screens);
    if (!screens.rem) return OG_NO_DISPLAY;
    if (screens.data->root_depth != 24) return OG_UNSUPPORTED;
    d->root = screens.data->root;
    d->width = screens.data->width_in_pixels;
    d->height = screens.data->height_in_pixels;
    og_procs_init(&d->procs, name ? name : getenv("DISPLAY"));
    d->procs.client_mask = xcb_get_setup(d->c)->resource_id_mask;
    int status = open_extensions(d);
    if (!status) status = intern_atoms(d);
    if (!status) status = find_server(d);
    if (!status) status = og_frame_open(&d->frame, d->width, d->height, fbdir);
    if (status) return status;
    if (!d->frame.is_fbdir) {
        d->frame.shm_seg = xcb_generate_id(d->c);
        xcb_void_cookie_t cookie =
            xcb_shm_attach_checked(d->c, d->frame.shm_seg, (uint32_t)d->frame.shm_id, 0);
        xcb_generic_error_t *error = xcb_request_check(d->c, cookie);
        if (error) {
            free(error);
            return OG_UNSUPPORTED;
        }
    }
    uint32_t mask = XCB_EVENT_MASK_PROPERTY_CHANGE | XCB_EVENT_MASK_SUBSTRUCTURE_NOTIFY;
    xcb_change_window_attributes(d->c, d->root, XCB_CW_EVENT_MASK, &mask);
    xcb_damage_create(d->c, xcb_generate_id(d->c), d->root, XCB_DAMAGE_REPORT_LEVEL_RAW_RECTANGLES);
    xcb_xfixes_select_cursor_input(d->c, d->root, XCB_XFIXES_CURSOR_NOTIFY_MASK_DISPLAY_CURSOR);
    d->windows_stale = true;
    d->keymap_stale = true;
    d->cursor.stale = true;
    return og_sync(d);
}

void og_close(og_display *d) {
    og_procs_close(&d->procs);
    og_frame_close(&d->frame);
    og_png_free(&d->png);
    if (d->c) xcb_disconnect(d->c);
    d->c = NULL;
    free(d->trace_changes);
    d->trace_changes = NULL;
}

int og_sync(og_display *d) {
    xcb_get_input_focus_reply_t *reply =
        xcb_get_input_focus_reply(d->c, xcb_get_input_focus(d->c), NULL);
    if (!reply) return broken(d);
    free(reply);
    return OG_OK;
}

/* ---- events ---- */

static void trace_change(og_display *d, uint64_t now, og_box box, const og_diff *diff) {
    if (!d->trace_changes || d->trace_count >= d->trace_capacity) return;
    d->trace_changes[d->trace_count++] = (og_change){(double)now / 1e6, box, *diff};
}

static int fetch_part(og_display *d, og_box box);
static int draw_cursor(og_display *d, int y0, int y1);

static bool meet(og_box a, og_box b) {
    return a.x0 < b.x1 && b.x0 < a.x1 && a.y0 < b.y1 && b.y0 < a.y1;
}

static void compare(og_display *d, og_box box, enum og_mode mode) {
    og_diff diff;
    uint64_t now = og_now();
    d->last_damage_ns = now;
    for (int i = 0; i < d->frame.mask_count; i++)
        if (meet(box, d->frame.masks[i])) d->last_panel_ns = now;
    if (mode == OG_DROP) {
        og_frame_mark(&d->frame, box);
        return;
    }
    if (!d->frame.is_fbdir && (fetch_part(d, box) || draw_cursor(d, box.y0, box.y1))) return;
    og_frame_compare(&d->frame, box, mode == OG_UPDATE, &diff);
    trace_change(d, now, box, &diff);
    if (!diff.pixels || og_is_caret(&diff)) return;
    if (!d->first_change_ns) d->first_change_ns = now;
    d->last_change_ns = now;
}

bool og_pointer_is_masked(og_display *d) {
    if (!d->frame.mask_count) return false;
    xcb_query_pointer_reply_t *p = xcb_query_pointer_reply(d->c, xcb_query_pointer(d->c, d->root), NULL);
    bool inside = false;
    for (int i = 0; p && i < d->frame.mask_count; i++) {
        const og_box *m = &d->frame.masks[i];
        inside |= p->root_x >= m->x0 && p->root_x < m->x1 && p->root_y >= m->y0 && p->root_y < m->y1;
    }
    free(p);
    return inside;
}

/* Ask where the displayed cursor is, and mark that place and the one before as stale. */
static int find_cursor(og_display *d) {
    og_cursor *cursor = &d->cursor;
    if (cursor->stale) {
        xcb_xfixes_get_cursor_image_reply_t *image =
            xcb_xfixes_get_cursor_image_reply(d->c, xcb_xfixes_get_cursor_image(d->c), NULL);
        cursor->stale = false;
        if (image) {
            cursor->width = image->width;
            cursor->height = image->height;
            cursor->hot_x = image->xhot;
            cursor->hot_y = image->yhot;
            free(image);
        } else if (xcb_connection_has_error(d->c)) {
            return OG_GONE;
        } else { /* no cursor is shown, as after the end of the window manager */
            cursor->width = cursor->height = 0;
        }
    }
    xcb_query_pointer_reply_t *p = xcb_query_pointer_reply(d->c, xcb_query_pointer(d->c, d->root), NULL);
    if (!p) return broken(d);
    int x = p->root_x - cursor->hot_x, y = p->root_y - cursor->hot_y;
    free(p);
    og_frame_mark(&d->frame, cursor->box);
    cursor->box = (og_box){x, y, x + cursor->width, y + cursor->height};
    og_frame_mark(&d->frame, cursor->box);
    return OG_OK;
}

static void compare_cursor(og_display *d, enum og_mode mode) {
    og_box before = d->cursor.box;
    if (find_cursor(d)) return;
    compare(d, before, mode);
    compare(d, d->cursor.box, mode);
}

static og_window *known_window(og_display *d, xcb_window_t id) {
    for (int i = 0; i < d->window_count; i++)
        if (d->windows[i].id == id) return &d->windows[i];
    return NULL;
}

/* A program may make a dialog of a window that is shown already. */
static int take_type_change(og_display *d, xcb_window_t window, xcb_atom_t atom) {
    if (atom != d->atoms[OG_NET_WM_WINDOW_TYPE] && atom != XCB_ATOM_WM_TRANSIENT_FOR) return 0;
    og_window *known = known_window(d, window);
    if (!known) return 0;
    known->type_stale = true;
    d->windows_stale = true;
    return OG_EVENT_WINDOWS;
}

static int take_event(og_display *d, const xcb_generic_event_t *event, enum og_mode mode, og_box *batch) {
    uint8_t type = event->response_type & 0x7f;
    if (type == d->damage_event + XCB_DAMAGE_NOTIFY) {
        const xcb_damage_notify_event_t *e = (const void *)event;
        og_box box = {e->area.x, e->area.y, e->area.x + e->area.width, e->area.y + e->area.height};
        /* rectangles that continue the last one are compared with it */
        if (batch->x1 > batch->x0) {
            if (box.x0 >= batch->x0 && box.x1 <= batch->x1 && box.y0 >= batch->y0 && box.y1 <= batch->y1)
                return OG_EVENT_DAMAGE;
            compare(d, *batch, mode);
        }
        *batch = box;
        return OG_EVENT_DAMAGE;
    }
    if (type == d->xfixes_event + XCB_XFIXES_CURSOR_NOTIFY) {
        d->cursor_stale = d->cursor.stale = true;
        return OG_EVENT_CURSOR;
    }
    switch (type) {
    case XCB_PROPERTY_NOTIFY: {
        const xcb_property_notify_event_t *e = (const void *)event;
        xcb_atom_t atom = e->atom;
        if (e->window != d->root) return take_type_change(d, e->window, atom);
        if (atom != d->atoms[OG_NET_CLIENT_LIST] && atom != d->atoms[OG_NET_SUPPORTING_WM_CHECK] &&
            atom != d->atoms[OG_NET_ACTIVE_WINDOW])
            return 0;
        d->windows_stale = true;
        d->last_window_ns = og_now();
        return OG_EVENT_WINDOWS;
    }
    case XCB_UNMAP_NOTIFY: /* a menu or a tool tip: the list of windows stays */
        d->last_window_ns = og_now();
        return 0;
    case XCB_MAP_NOTIFY:
    case XCB_DESTROY_NOTIFY:
        d->last_window_ns = og_now();
        /* fall through */
    case XCB_REPARENT_NOTIFY:
        d->windows_stale = true;
        return OG_EVENT_WINDOWS;
    case XCB_MAPPING_NOTIFY:
        d->keymap_stale = true;
        return OG_EVENT_KEYMAP;
    default:
        return 0;
    }
}

int og_drain(og_display *d, enum og_mode mode) {
    int seen = d->unreported;
    og_box batch = {0, 0, 0, 0};
    xcb_generic_event_t *event;
    d->unreported = 0;
    while ((event = xcb_poll_for_event(d->c))) {
        seen |= take_event(d, event, mode, &batch);
        free(event);
    }
    if (batch.x1 > batch.x0) compare(d, batch, mode);
    if (d->cursor_stale && mode != OG_DROP) {
        d->cursor_stale = false;
        compare_cursor(d, mode);
    }
    return xcb_connection_has_error(d->c) ? OG_GONE : seen;
}

/* ---- windows ---- */

static xcb_window_t window_property(og_display *d, xcb_get_property_cookie_t cookie) {
    xcb_window_t window = 0;
    xcb_get_property_reply_t *reply = xcb_get_property_reply(d->c, cookie, NULL);
    if (reply && reply->format == 32 && xcb_get_property_value_length(reply) >= 4)
        window = *(xcb_window_t *)xcb_get_property_value(reply);
    free(reply);
    return window;
}

static xcb_get_property_cookie_t ask(og_display *d, xcb_window_t window, enum og_atom atom, uint32_t words) {
    return xcb_get_property(d->c, 0, window, d->atoms[atom], XCB_GET_PROPERTY_TYPE_ANY, 0, words);
}

typedef struct {
    xcb_get_property_cookie_t type, owner;
} type_cookies;

static type_cookies ask_type(og_display *d, xcb_window_t window) {
    return (type_cookies){ask(d, window, OG_NET_WM_WINDOW_TYPE, 32),
                          xcb_get_property(d->c, 0, window, XCB_ATOM_WM_TRANSIENT_FOR, XCB_ATOM_WINDOW, 0, 1)};
}

static int type_of(og_display *d, type_cookies cookies) {
    int type = window_property(d, cookies.owner) ? OG_WINDOW_DIALOG : OG_WINDOW_OTHER;
    xcb_get_property_reply_t *reply = xcb_get_property_reply(d->c, cookies.type, NULL);
    if (reply && reply->format == 32) {
        const xcb_atom_t *atoms = xcb_get_property_value(reply);
        int count = xcb_get_property_value_length(reply) / 4;
        for (int i = 0; i < count; i++) {
            if (atoms[i] == d->atoms[OG_TYPE_DOCK]) type = OG_WINDOW_DOCK;
            if (atoms[i] == d->atoms[OG_TYPE_DESKTOP]) type = OG_WINDOW_DESKTOP;
            if (atoms[i] == d->atoms[OG_TYPE_DIALOG]) type = OG_WINDOW_DIALOG;
        }
    }
    free(reply);
    return type;
}

static void update_masks(og_display *d) {
    og_box masks[OG_MAX_MASKS];
    int count = 0;
    d->procs.panel_count = 0;
    for (int i = 0; i < d->window_count; i++) {
        if (d->windows[i].type != OG_WINDOW_DOCK) continue;
        if (count < OG_MAX_MASKS) masks[count++] = d->windows[i].box;
        int pid = og_pid_of(d, d->windows[i].id);
        if (pid && pid != d->procs.wm_pid && d->procs.panel_count < 8)
            d->procs.panel_pids[d->procs.panel_count++] = pid;
    }
    og_frame_set_masks(&d->frame, masks, count);
}

static void locate(og_display *d, og_window *w) {
    xcb_get_geometry_cookie_t gc = xcb_get_geometry(d->c, w->id);
    xcb_translate_coordinates_cookie_t tc = xcb_translate_coordinates(d->c, w->id, d->root, 0, 0);
    xcb_get_geometry_reply_t *g = xcb_get_geometry_reply(d->c, gc, NULL);
    xcb_translate_coordinates_reply_t *t = xcb_translate_coordinates_reply(d->c, tc, NULL);
    if (g && t)
        w->box = (og_box){t->dst_x, t->dst_y, t->dst_x + g->width, t->dst_y + g->height};
    free(g);
    free(t);
}

static void hear_of_properties(og_display *d, xcb_window_t window) {
    uint32_t mask = XCB_EVENT_MASK_PROPERTY_CHANGE;
    xcb_change_window_attributes(d->c, window, XCB_CW_EVENT_MASK, &mask);
}

static void remember_owners(og_display *d) {
    d->procs.window_pid_count = 0;
    for (int i = 0; i < d->window_count; i++) {
        int pid = og_pid_of(d, d->windows[i].id);
        if (pid) d->procs.window_pids[d->procs.window_pid_count++] = pid;
    }
}

int og_refresh_windows(og_display *d) {
    d->windows_stale = false;
    xcb_get_property_cookie_t wm = ask(d, d->root, OG_NET_SUPPORTING_WM_CHECK, 1);
    xcb_get_property_cookie_t active = ask(d, d->root, OG_NET_ACTIVE_WINDOW, 1);
    xcb_get_property_cookie_t list = ask(d, d->root, OG_NET_CLIENT_LIST, OG_MAX_WINDOWS);
    int status = og_refresh_clients(d);
    d->wm_window = window_property(d, wm);
    d->active_window = window_property(d, active);
    xcb_get_property_reply_t *reply = xcb_get_property_reply(d->c, list, NULL);
    if (!reply || status) {
        free(reply);
        return status ? status : broken(d);
    }
    const xcb_window_t *ids = xcb_get_property_value(reply);
    int count = reply->format == 32 ? xcb_get_property_value_length(reply) / 4 : 0;
    if (count > OG_MAX_WINDOWS) count = OG_MAX_WINDOWS;
    og_window *next = calloc((size_t)count + 1, sizeof *next);
    type_cookies *types = calloc((size_t)count + 1, sizeof *types);
    if (next && types) {
        for (int i = 0; i < count; i++) {
            const og_window *known = known_window(d, ids[i]);
            if (!known) hear_of_properties(d, ids[i]); /* before it is asked: no change is missed */
            if (!known || known->type_stale) types[i] = ask_type(d, ids[i]);
        }
        for (int i = 0; i < count; i++) {
            const og_window *known = known_window(d, ids[i]);
            if (known && !known->type_stale) next[i] = *known;
            else next[i] = (og_window){.id = ids[i], .type = type_of(d, types[i]), .mapped = true};
        }
        memcpy(d->windows, next, (size_t)count * sizeof *next);
        d->window_count = count;
        for (int i = 0; i < count; i++)
            if (d->windows[i].type == OG_WINDOW_DOCK) locate(d, &d->windows[i]);
    }
    free(next);
    free(types);
    free(reply);
    d->procs.wm_pid = d->wm_window ? og_pid_of(d, d->wm_window) : 0;
    update_masks(d);
    remember_owners(d);
    return xcb_connection_has_error(d->c) ? OG_GONE : OG_OK;
}

/* ---- capture ---- */

static int fetch_part(og_display *d, og_box b) {
    og_frame *f = &d->frame;
    if (b.x0 < 0) b.x0 = 0;
    if (b.y0 < 0) b.y0 = 0;
    if (b.x1 > f->width) b.x1 = f->width;
    if (b.y1 > f->height) b.y1 = f->height;
    if (b.x1 <= b.x0 || b.y1 <= b.y0) return OG_OK;
    /* whole rows, so that what arrives has the stride of the frame */
    xcb_shm_get_image_cookie_t cookie = xcb_shm_get_image(
        d->c, d->root, 0, (int16_t)b.y0, (uint16_t)f->width, (uint16_t)(b.y1 - b.y0), ~0u,
        XCB_IMAGE_FORMAT_Z_PIXMAP, f->shm_seg, (uint32_t)((size_t)b.y0 * f->source_stride));
    xcb_shm_get_image_reply_t *reply = xcb_shm_get_image_reply(d->c, cookie, NULL);
    if (!reply) return broken(d);
    free(reply);
    return OG_OK;
}

/* Draw the pointer into the rows that were fetched, where the X server does not do it itself. */
static int draw_cursor(og_display *d, int y0, int y1) {
    og_frame *f = &d->frame;
    xcb_xfixes_get_cursor_image_reply_t *cursor =
        xcb_xfixes_get_cursor_image_reply(d->c, xcb_xfixes_get_cursor_image(d->c), NULL);
    if (!cursor) return broken(d);
    const uint32_t *image = xcb_xfixes_get_cursor_image_cursor_image(cursor);
    int left = cursor->x - cursor->xhot, top = cursor->y - cursor->yhot;
    for (int y = 0; y < cursor->height; y++) {
        if (top + y < 0 || top + y >= f->height || top + y < y0 || top + y >= y1) continue;
        uint32_t *row = (uint32_t *)f->map + (size_t)(top + y) * (size_t)f->width;
        for (int x = 0; x < cursor->width; x++) {
            if (left + x < 0 || left + x >= f->width) continue;
            uint32_t over = image[y * cursor->width + x], under = row[left + x], out = 0;
            uint32_t through = 255 - (over >> 24);
            for (int shift = 0; shift < 24; shift += 8) {
                uint32_t c = ((over >> shift) & 255) + (((under >> shift) & 255) * through + 127) / 255;
                out |= (c > 255 ? 255 : c) << shift;
            }
            row[left + x] = out;
        }
    }
    free(cursor);
    return OG_OK;
}

/* Take over what was drawn since. The damage events of all drawing before a round trip were sent before its reply. */
static int capture_damaged(og_display *d) {
    int status = find_cursor(d);
    if (status) return status;
    int seen = og_drain(d, OG_DROP);
    if (seen < 0) return seen;
    d->unreported = seen; /* for who watches */
    return d->cursor.stale ? find_cursor(d) : OG_OK;
}

int og_capture(og_display *d) {
    int status = OG_OK;
    if (d->frame.is_fbdir) {
        status = capture_damaged(d);
    } else {
        status = fetch_part(d, (og_box){0, 0, d->width, d->height});
        if (!status) status = draw_cursor(d, 0, d->height);
        og_frame_mark(&d->frame, (og_box){0, 0, d->width, d->height});
    }
    if (!status) og_frame_take(&d->frame);
    return status;
}
