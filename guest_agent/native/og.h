/* The native core of the guest agent: X11, the frame, PNG, processes, settling.
 *
 * Plain C over libxcb; module.c binds it to Python. One og_display is used by one thread at a time.
 * Functions return 0 or a positive count, or a negative og_status. Times are CLOCK_MONOTONIC in ns.
 */
#ifndef OG_H
#define OG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <xcb/xcb.h>

enum og_status {
    OG_OK = 0,
    OG_GONE = -1,      /* the X server is gone */
    OG_NO_DISPLAY = -2, /* no X server to connect to */
    OG_UNSUPPORTED = -3, /* an extension or a pixel format is missing */
    OG_NO_MEMORY = -4,
    OG_FAILED = -5,    /* the X server refused a request, or an OS call failed */
};

typedef struct { int x0, y0, x1, y1; } og_box; /* x1 and y1 are outside */

uint64_t og_now(void);

/* ---- frame.c: the frame we know (shadow), compared with the screen ---- */

#define OG_STRIPE_ROWS 54
#define OG_MAX_STRIPES 256
#define OG_MAX_MASKS 16

typedef struct { int x0, x1; } og_span; /* x1 is outside; none: x1 <= x0 */

typedef struct {
    int width, height, stripes;
    /* the X server's own framebuffer file, or our shared memory segment */
    void *map;
    size_t map_bytes;
    const uint8_t *source;
    size_t source_stride;
    bool is_fbdir;
    int shm_id;
    uint32_t shm_seg;
    uint32_t *shadow;              /* width * height, the padding byte is garbage */
    og_span *stale;                /* of each row: where the screen may differ from the shadow */
    uint64_t stripe_hash[OG_MAX_STRIPES], unmasked_hash[OG_MAX_STRIPES];
    bool hash_stale[OG_MAX_STRIPES], unmasked_stale[OG_MAX_STRIPES];
    bool png_stale[OG_MAX_STRIPES];
    og_box masks[OG_MAX_MASKS];
    int mask_count;
} og_frame;

typedef struct {
    long pixels;   /* that differ, outside the masks */
    og_box box;    /* around them */
} og_diff;

int og_frame_open(og_frame *frame, int width, int height, const char *fbdir);
void og_frame_close(og_frame *frame);
/* Compare a rectangle of the screen with the shadow; with `update` the shadow takes it over. */
void og_frame_compare(og_frame *frame, og_box box, bool update, og_diff *diff);
/* Note that the screen may differ from the shadow within a rectangle. */
void og_frame_mark(og_frame *frame, og_box box);
/* Take over into the shadow what may differ. Reads nothing else: most memory of a screen at rest stays in swap. */
void og_frame_take(og_frame *frame);
void og_frame_set_masks(og_frame *frame, const og_box *masks, int count);
uint64_t og_frame_hash(og_frame *frame);
/* The same of what lies outside the masks. */
uint64_t og_frame_hash_unmasked(og_frame *frame);
/* Whether a mask covers a pixel. */
bool og_frame_masks(const og_frame *frame, int x, int y);
bool og_is_caret(const og_diff *diff);

/* ---- png.c ---- */

typedef struct {
    uint8_t *bytes;
    size_t length;
    uint32_t adler;
    size_t raw_length;
} og_stripe;

typedef struct {
    og_stripe stripes[OG_MAX_STRIPES];
    uint8_t *filtered, *difference, *chunk; /* scratch */
    size_t filtered_capacity, chunk_capacity;
    uint8_t *level_buffer;
} og_png;

/* The whole shadow as a PNG, encoded anew only where it changed. Length, or a negative status;
 * *out is malloc'ed. */
long og_png_frame(og_png *png, og_frame *frame, uint8_t **out);
/* A part of the shadow. */
long og_png_region(og_png *png, const og_frame *frame, og_box region, uint8_t **out);
void og_png_free(og_png *png);

/* ---- procs.c: who works for the screen, and is it at work ---- */

#define OG_MAX_PROCS 4096
#define OG_MAX_GROUPS 64
#define OG_MAX_CLIENTS 256
#define OG_MAX_THREADS 256
#define OG_MAX_NAMES 16
#define OG_MAX_WINDOWS 256

enum og_group_kind { OG_GROUP_SERVER = 0, OG_GROUP_WM = 1, OG_GROUP_PANEL = 2, OG_GROUP_FIRST_APP = 3 };

typedef struct {
    int pid, ppid;
    char comm[16];
    int group;            /* -1: does not count */
    bool seen, fresh;     /* fresh: came after the base line */
    uint64_t launched_ns; /* when it was first seen, if the agent had started it; else 0 */
    uint64_t cpu_ns;      /* as last sampled */
    uint64_t base_ns;     /* when the action began */
    uint64_t rate_ns, rate_at_ns, burning_since_ns; /* for burners */
    bool burner;
    bool dead;
} og_proc;

typedef struct {
    int pid, tid;
    int fd_sched, fd_syscall;
    uint64_t run_ns, entered_ns;
    long nr;
    double remaining_ms;  /* OG_REMAINING_*, or until its own timeout */
    double waited_ms;     /* since it was first seen in this wait */
    bool is_client_main;  /* the main thread of an X client */
    double reply_wait_ms; /* for so long it has waited for one descriptor only; < 0: it does not */
    bool is_starting;     /* the main thread of a program that the agent started a moment ago */
    double call_wait_ms;  /* for so long that one has waited for an answer; < 0: it does not */
} og_thread;

#define OG_NEVER (-1.0)
#define OG_RUNNING (0.0)
#define OG_UNKNOWN (-2.0)

typedef struct { uint32_t base; int pid; } og_client;

typedef struct {
    og_proc list[OG_MAX_PROCS];
    int count;
    og_thread threads[OG_MAX_THREADS];
    int thread_count;
    og_client clients[OG_MAX_CLIENTS];
    int client_count;
    uint32_t client_mask;
    int group_pid[OG_MAX_GROUPS];
    int group_count;
    uint64_t group_cpu_ns[OG_MAX_GROUPS]; /* since the action began */
    uint64_t group_dead_ns[OG_MAX_GROUPS];
    int server_pid, wm_pid, own_pid;
    int starter_pid;      /* parent of what the agent starts; 0: the agent itself */
    int panel_pids[8];
    int panel_count;
    int window_pids[OG_MAX_WINDOWS]; /* processes that have a window which the window manager lists */
    int window_pid_count;
    bool panel_counts;    /* the pointer is on it: its work is about the action, not about its clock */
    char display[64];     /* DISPLAY without the screen number */
    int fd_loadavg;
    long last_pid;        /* of the last scan */
    bool base_line;       /* the first scan is done */
    bool clients_changed;
    char thread_names[OG_MAX_NAMES][16]; /* threads watched besides the main ones */
    int thread_name_count;
    double burner_s, burner_share;
    bool follow_starting; /* programs just started, also those that did not run since the action began */
} og_procs;

void og_procs_init(og_procs *procs, const char *display);
void og_procs_close(og_procs *procs);
bool og_procs_stale(og_procs *procs);
void og_procs_scan(og_procs *procs);
void og_procs_begin(og_procs *procs, uint64_t now);
void og_procs_sample(og_procs *procs);
void og_procs_find_burners(og_procs *procs, uint64_t now);
void og_procs_follow_threads(og_procs *procs, uint64_t now);
bool og_procs_any_running(og_procs *procs);
bool og_group_counts(const og_procs *procs, int group);
bool og_procs_any_burner(const og_procs *procs);
/* Whether a descendant of a process has a terminal of its own: then the process is its window. */
bool og_procs_has_terminal(const og_procs *p, int pid);
/* Whether a program carries out Enter after characters typed behind it: LibreOffice, whose Enter is a command. */
bool og_runs_enter_later(int pid);
const og_proc *og_procs_find(const og_procs *procs, int pid);

/* ---- x11.c ---- */

enum og_atom {
    OG_NET_SUPPORTING_WM_CHECK, OG_NET_CLIENT_LIST, OG_NET_ACTIVE_WINDOW, OG_NET_WM_WINDOW_TYPE,
    OG_TYPE_DOCK, OG_TYPE_DESKTOP, OG_TYPE_DIALOG, OG_ATOM_COUNT
};

enum og_window_type { OG_WINDOW_OTHER = 0, OG_WINDOW_DOCK = 1, OG_WINDOW_DESKTOP = 2, OG_WINDOW_DIALOG = 3 };
typedef struct { xcb_window_t id; int type; og_box box; bool mapped, type_stale; } og_window;

enum og_events { OG_EVENT_DAMAGE = 1, OG_EVENT_WINDOWS = 2, OG_EVENT_KEYMAP = 4, OG_EVENT_CURSOR = 8 };
enum og_mode { OG_DROP, OG_UPDATE, OG_WATCH };
/* Of the displayed cursor, which the X server draws without a damage event. */
typedef struct { int width, height, hot_x, hot_y; bool stale; og_box box; } og_cursor;

typedef struct {
    double at_ms;
    og_box box;
    og_diff diff;
} og_change;

typedef struct {
    xcb_connection_t *c;
    xcb_window_t root;
    int width, height;
    uint8_t damage_event, xfixes_event, xres_opcode;
    bool has_xres;
    xcb_atom_t atoms[OG_ATOM_COUNT];
    og_window windows[OG_MAX_WINDOWS];
    int window_count;
    xcb_window_t wm_window, active_window;
    bool windows_stale;
    bool keymap_stale;
    bool cursor_stale;
    og_cursor cursor;
    int unreported;          /* og_events that a capture has read */
    og_frame frame;
    og_png png;
    og_procs procs;
    /* changes seen by the last drain; times are absolute */
    uint64_t first_change_ns, last_change_ns; /* 0: none */
    uint64_t last_damage_ns;
    uint64_t last_window_ns; /* a window came or went, or another became the active one */
    uint64_t last_panel_ns;  /* something was drawn where a panel is */
    bool pointer_on_panel;   /* when the wait began */
    og_change *trace_changes;
    int trace_count, trace_capacity;
    volatile int cancel;
} og_display;

int og_open(og_display *d, const char *name, const char *fbdir);
void og_close(og_display *d);
int og_sync(og_display *d);
/* Read what the X server has sent, without blocking; og_events seen, or a negative status. */
int og_drain(og_display *d, enum og_mode mode);
int og_refresh_windows(og_display *d);
int og_refresh_clients(og_display *d);
int og_pid_of(const og_display *d, xcb_window_t window);
bool og_pointer_is_masked(og_display *d);
int og_capture(og_display *d);

/* ---- settle.c ---- */

typedef struct { char name[16]; double horizon_ms, change_horizon_ms, window_horizon_ms; } og_horizon;

/* Every number of a rule, by the name that it has in Python: a new one is a line here and its use in settle.c. */
#define OG_RULE_NUMBERS(X)                                                                       \
    X(max_ms)                                                                                    \
    X(pause_ms)          /* >= 0: a fixed pause, no rule */                                      \
    X(idle_ms)           /* nobody at work for so long */                                        \
    X(cpu_share)         /* and a group used less than this share of that time */                \
    X(horizon_ms)        /* nobody wakes by itself before this, counted from the action */       \
    X(change_horizon_ms) /* nor before this, counted from the last change; 0: off */             \
    X(window_horizon_ms) /* nor before this, counted from the last window that came, went or got active; 0: off */ \
    X(timer_ms)          /* nor by a timeout that is no longer than this when its wait begins; 0: off */ \
    X(reply_ms)          /* a client's main thread that waits for one descriptor is at work for so long; 0: off */ \
    X(call_ms)           /* a program just started that waits for an answer is at work for so long; 0: off */ \
    X(panel_ms)          /* the panel counts for so long after the action and the last change of windows; 0: off */ \
    X(damage_quiet_ms)   /* no change for so long; 0: off */                                     \
    X(burner_quiet_ms)   /* the same, while somebody burns the processor all the time */         \
    X(turn_ms)                                                                                   \
    X(check_threads)     /* not 0: nobody's thread may be running */

typedef struct {
#define OG_RULE_FIELD(name) double name;
    OG_RULE_NUMBERS(OG_RULE_FIELD)
#undef OG_RULE_FIELD
    const og_horizon *horizons; /* by process name, instead of the rule's own */
    int horizon_count;
    FILE *trace;
} og_settle_rule;

enum og_reason { OG_QUIET, OG_TIMEOUT, OG_UNCHANGED, OG_FIXED, OG_CANCELLED };

typedef struct {
    enum og_reason reason;
    double wait_ms;
    double last_change_ms;      /* < 0: nothing changed */
    int turns;
    double cpu_us;              /* what the loop itself used */
} og_settled;

/* Before the input: remember where everybody is. */
int og_settle_begin(og_display *d);
/* After the input, which ended at `since`. */
int og_settle(og_display *d, const og_settle_rule *rule, uint64_t since, og_settled *out);

#endif
