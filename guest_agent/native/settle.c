/* When is the screen final? The rule, turn by turn. */
#define _GNU_SOURCE
#include "og.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* LEAST_LOOKS: samples that a quiet window spans at least; on a busy machine samples lie far apart. */
enum { LEAST_LOOKS = 3, HISTORY = 512, SCAN_EVERY_NS = 8000000, BURNERS_EVERY_NS = 500000000, TRACE_CHANGES = 4096 };

typedef struct {
    uint64_t at_ns[HISTORY];
    uint64_t cpu_ns[HISTORY][OG_MAX_GROUPS];
    int count; /* ever; the newest is (count - 1) % HISTORY */
} history;

int og_settle_begin(og_display *d) {
    int seen = og_drain(d, OG_WATCH);
    if (seen < 0) return seen;
    int status = d->windows_stale ? og_refresh_windows(d) : OG_OK;
    if (status) return status;
    if (og_procs_stale(&d->procs)) og_procs_scan(&d->procs);
    og_procs_begin(&d->procs, og_now());
    d->first_change_ns = d->last_change_ns = 0;
    d->last_damage_ns = d->last_window_ns = d->last_panel_ns = 0;
    d->trace_count = 0;
    d->cancel = 0;
    return OG_OK;
}

static void remember(history *h, const og_procs *p, uint64_t now) {
    int slot = h->count % HISTORY;
    h->at_ns[slot] = now;
    memcpy(h->cpu_ns[slot], p->group_cpu_ns, sizeof h->cpu_ns[slot]);
    h->count++;
}

/* Whether every group used less than its share during the last idle_ms. */
static bool is_idle(const history *h, const og_procs *p, const og_settle_rule *r, uint64_t now, uint64_t since) {
    uint64_t window = (uint64_t)(r->idle_ms * 1e6);
    if (now < since + window || h->count < LEAST_LOOKS) return false;
    int oldest = h->count > HISTORY ? h->count - HISTORY : 0;
    int at = h->count - 1;
    while (at > oldest && h->at_ns[at % HISTORY] + window > now) at--;
    if (at > h->count - LEAST_LOOKS) at = h->count - LEAST_LOOKS;
    uint64_t span = now - h->at_ns[at % HISTORY];
    uint64_t limit = (uint64_t)((double)(span > window ? span : window) * r->cpu_share);
    for (int g = 0; g < p->group_count; g++) {
        if (!og_group_counts(p, g)) continue;
        uint64_t before = h->cpu_ns[at % HISTORY][g];
        if (p->group_cpu_ns[g] > before && p->group_cpu_ns[g] - before >= limit) return false;
    }
    return true;
}

/* The horizons of a process: those of its name, else the rule's own. */
static og_horizon horizon_of(const og_settle_rule *r, const og_procs *p, int pid) {
    const og_proc *proc = og_procs_find(p, pid);
    for (int i = 0; proc && i < r->horizon_count; i++)
        if (!strcmp(r->horizons[i].name, proc->comm)) return r->horizons[i];
    return (og_horizon){"", r->horizon_ms, r->change_horizon_ms, r->window_horizon_ms};
}

/* Whether a timer fires within a horizon, counted from something that was `since_ms` ago; < 0: it never was. */
static bool fires_within(double since_ms, double remaining_ms, double horizon_ms) {
    return horizon_ms > 0 && since_ms >= 0 && since_ms + remaining_ms <= horizon_ms;
}

/* How long ago something was, in ms; one that was while the action went on counts from its end; < 0: never. */
static double since_last(uint64_t at, uint64_t since, uint64_t now) {
    return at ? (double)(now - (at > since ? at : since)) / 1e6 : -1;
}

/* Whether somebody waits for an answer, or will wake by its own timeout, soon enough to count. */
static bool timer_pending(const og_display *d, const og_settle_rule *r, double since_action_ms,
                          double since_change_ms, double since_window_ms) {
    for (int i = 0; i < d->procs.thread_count; i++) {
        const og_thread *t = &d->procs.threads[i];
        if (t->reply_wait_ms >= 0 && t->reply_wait_ms < r->reply_ms) return true;
        if (t->call_wait_ms >= 0 && t->call_wait_ms < r->call_ms) return true;
        if (t->remaining_ms == OG_NEVER || t->remaining_ms == OG_UNKNOWN) continue;
        if (t->remaining_ms == OG_RUNNING) return true;
        og_horizon h = horizon_of(r, &d->procs, t->pid);
        if (fires_within(since_action_ms, t->remaining_ms, h.horizon_ms) ||
            fires_within(since_change_ms, t->remaining_ms, h.change_horizon_ms) ||
            fires_within(since_window_ms, t->remaining_ms, h.window_horizon_ms) ||
            fires_within(t->waited_ms, t->remaining_ms, r->timer_ms))
            return true;
    }
    return false;
}

/* ---- trace: one JSON object per line ---- */

static void trace_begin(const og_display *d, FILE *f, const og_settle_rule *r, uint64_t since) {
    const og_procs *p = &d->procs;
    fprintf(f, "{\"begin\":%.3f,\"rule\":{\"max\":%g,\"pause\":%g,\"idle\":%g,\"share\":%g,\"horizon\":%g},\"procs\":[",
            (double)since / 1e6, r->max_ms, r->pause_ms, r->idle_ms, r->cpu_share, r->horizon_ms);
    bool first = true;
    for (int i = 0; i < p->count; i++) {
        if (p->list[i].group < 0) continue;
        fprintf(f, "%s[%d,%d,\"", first ? "" : ",", p->list[i].pid, p->list[i].group);
        for (const char *c = p->list[i].comm; *c; c++)
            if (*c != '"' && *c != '\\' && (unsigned char)*c >= ' ') fputc(*c, f);
        fprintf(f, "\"]");
        first = false;
    }
    fprintf(f, "],\"masks\":[");
    for (int i = 0; i < d->frame.mask_count; i++) {
        const og_box *m = &d->frame.masks[i];
        fprintf(f, "%s[%d,%d,%d,%d]", i ? "," : "", m->x0, m->y0, m->x1, m->y1);
    }
    fprintf(f, "],\"active\":%d,\"burners\":%s}\n", og_pid_of(d, d->active_window),
            og_procs_any_burner(p) ? "true" : "false");
}

/* t, somebody runs, ms since a window came or went, cpu of each group since the action (ms),
 * threads [pid, tid, syscall, remaining, waiting for an answer] */
static void trace_turn(const og_display *d, FILE *f, uint64_t now, uint64_t since, bool running) {
    const og_procs *p = &d->procs;
    fprintf(f, "{\"t\":%.3f,\"run\":%d,\"win\":%.3f,\"cpu\":[", (double)(now - since) / 1e6, running,
            since_last(d->last_window_ns, since, now));
    for (int g = 0; g < p->group_count; g++)
        fprintf(f, "%s%.3f", g ? "," : "", (double)p->group_cpu_ns[g] / 1e6);
    fprintf(f, "],\"thr\":[");
    for (int i = 0; i < p->thread_count; i++)
        fprintf(f, "%s[%d,%d,%ld,%.2f,%.2f]", i ? "," : "", p->threads[i].pid, p->threads[i].tid, p->threads[i].nr,
                p->threads[i].remaining_ms, p->threads[i].reply_wait_ms);
    fprintf(f, "]}\n");
}

static void trace_end(og_display *d, FILE *f, uint64_t since, const og_settled *out) {
    for (int i = 0; i < d->trace_count; i++) {
        const og_change *c = &d->trace_changes[i];
        fprintf(f, "{\"d\":%.3f,\"box\":[%d,%d,%d,%d],\"n\":%ld,\"in\":[%d,%d,%d,%d],\"caret\":%d}\n",
                c->at_ms - (double)since / 1e6, c->box.x0, c->box.y0, c->box.x1, c->box.y1, c->diff.pixels,
                c->diff.box.x0, c->diff.box.y0, c->diff.box.x1, c->diff.box.y1, og_is_caret(&c->diff));
    }
    fprintf(f, "{\"end\":%d,\"wait\":%.3f,\"change\":%.3f,\"turns\":%d,\"cpu_us\":%.1f}\n", out->reason,
            out->wait_ms, out->last_change_ms, out->turns, out->cpu_us);
    fflush(f);
}

/* ---- the loop ---- */

/* Look for new processes; whether there may have been any. */
static bool rescan(og_display *d) {
    if (d->windows_stale) og_refresh_windows(d);
    if (!og_procs_stale(&d->procs)) return false;
    if (!d->procs.clients_changed) og_refresh_clients(d);
    og_procs_scan(&d->procs);
    return true;
}

static void sample(og_display *d, history *h) {
    uint64_t now = og_now();
    og_procs_sample(&d->procs);
    og_procs_follow_threads(&d->procs, now);
    remember(h, &d->procs, now);
}

/* Whether the panel is waited for: its clock, which has no end, may delay nobody for longer than panel_ms. */
static bool panel_is_due(const og_display *d, const og_settle_rule *r, uint64_t now, uint64_t since) {
    uint64_t from = d->last_window_ns > since ? d->last_window_ns : since;
    return r->panel_ms > 0 && (double)(now - from) / 1e6 < r->panel_ms;
}

static bool is_quiet(og_display *d, const og_settle_rule *r, const history *h, uint64_t now, uint64_t since) {
    bool panel_due = panel_is_due(d, r, now, since);
    d->procs.panel_counts = panel_due || d->pointer_on_panel;
    if (panel_due && d->last_panel_ns && (double)(now - d->last_panel_ns) / 1e6 < r->idle_ms) return false;
    if (!is_idle(h, &d->procs, r, now, since)) return false;
    double since_action = (double)(now - since) / 1e6;
    uint64_t changed = d->last_change_ns > since ? d->last_change_ns : since;
    double since_change = since_last(d->last_change_ns, since, now);
    double since_window = since_last(d->last_window_ns, since, now);
    double quiet = r->damage_quiet_ms;
    if (og_procs_any_burner(&d->procs) && r->burner_quiet_ms > quiet) quiet = r->burner_quiet_ms;
    if (quiet > 0 && (double)(now - changed) / 1e6 < quiet) return false;
    if (timer_pending(d, r, since_action, since_change, since_window)) return false;
    return !r->check_threads || !og_procs_any_running(&d->procs);
}

static void sleep_until(uint64_t at) {
    struct timespec t = {(time_t)(at / 1000000000u), (long)(at % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {}
}

static int run(og_display *d, const og_settle_rule *r, uint64_t since, og_settled *out, history *h) {
    uint64_t scanned = 0, burners_at = since;
    uint64_t turn = (uint64_t)(r->turn_ms * 1e6), next = og_now();
    bool fixed = r->pause_ms >= 0;
    uint64_t end = since + (uint64_t)((fixed ? r->pause_ms : r->max_ms) * 1e6);
    for (;;) {
        int seen = og_drain(d, OG_UPDATE);
        if (seen < 0) return seen;
        uint64_t now = og_now();
        out->turns++;
        if (!fixed || r->trace) {
            if (now - scanned > SCAN_EVERY_NS && rescan(d)) scanned = now;
            sample(d, h);
            if (now - burners_at > BURNERS_EVERY_NS) {
                og_procs_find_burners(&d->procs, now);
                burners_at = now;
            }
            now = og_now();
            if (r->trace) trace_turn(d, r->trace, now, since, og_procs_any_running(&d->procs));
        }
        if (now >= end) {
            out->reason = fixed ? OG_FIXED : OG_TIMEOUT;
            return OG_OK;
        }
        if (d->cancel) {
            out->reason = OG_CANCELLED;
            return OG_OK;
        }
        bool quiet = !fixed && is_quiet(d, r, h, now, since);
        if (quiet && rescan(d)) { /* somebody who came since the last look may be at work */
            scanned = now;
            sample(d, h);
            quiet = is_quiet(d, r, h, og_now(), since);
        }
        if (quiet) {
            /* what was sent to the X server before is drawn after one round trip */
            uint64_t changed = d->last_change_ns;
            int status = og_sync(d);
            if (status) return status;
            seen = og_drain(d, OG_UPDATE);
            if (seen < 0) return seen;
            if (d->last_change_ns == changed) {
                out->reason = d->last_change_ns ? OG_QUIET : OG_UNCHANGED;
                return OG_OK;
            }
        }
        next += turn;
        now = og_now();
        if (next < now) next = now + turn / 2;
        sleep_until(next < end ? next : end);
    }
}

int og_settle(og_display *d, const og_settle_rule *r, uint64_t since, og_settled *out) {
    struct timespec before, after;
    memset(out, 0, sizeof *out);
    out->last_change_ms = -1;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
    history *h = calloc(1, sizeof *h);
    if (!h) return OG_NO_MEMORY;
    if (r->trace && !d->trace_changes) {
        d->trace_changes = calloc(TRACE_CHANGES, sizeof *d->trace_changes);
        d->trace_capacity = d->trace_changes ? TRACE_CHANGES : 0;
    }
    d->procs.follow_starting = r->call_ms > 0;
    d->pointer_on_panel = og_pointer_is_masked(d);
    d->procs.panel_counts = d->pointer_on_panel || r->panel_ms > 0;
    if (r->trace) trace_begin(d, r->trace, r, since);
    int status = run(d, r, since, out, h);
    free(h);
    uint64_t now = og_now();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
    out->wait_ms = (double)(now - since) / 1e6;
    out->cpu_us = (double)(after.tv_sec - before.tv_sec) * 1e6 + (double)(after.tv_nsec - before.tv_nsec) / 1e3;
    if (d->last_change_ns)
        out->last_change_ms = d->last_change_ns > since ? (double)(d->last_change_ns - since) / 1e6 : 0;
    if (r->trace && !status) trace_end(d, r->trace, since, out);
    return status;
}
