#include "host/engine/energy.h"

#include "host/kernel/energy.h"

#include <stdio.h>
#include <string.h>

static void append(char *text, size_t size, const char *device, const char *words) {
    const size_t used = strlen(text);
    if (*words && used < size) snprintf(text + used, size - used, "%s%s: %s", used ? "; " : "", device, words);
}

static void sense(const crumb_engine_unit *u, crumb_device_sensors *out) {
    u->backend->device.sense(u->device, NULL, out);
}

void crumb_engine_energy_begin(const crumb_model *m, crumb_engine_energy *out) {
    *out = (crumb_engine_energy){0};
    for (size_t i = 0; i < m->n_units; i++) {
        sense(&m->units[i], &out->last[i]);
        append(out->missing, sizeof out->missing, m->units[i].info.name, out->last[i].missing);
        append(out->source, sizeof out->source, m->units[i].info.name, out->last[i].energy_source);
        out->is_unknown |= !*out->last[i].energy_source;
    }
    if (out->is_unknown) *out->source = 0;
    out->start_ns = crumb_now_ns();
}

/* A counter that was there and is not any more: what it has counted is not the whole. */
static void give_up(crumb_engine_energy *e, const char *device, const char *why) {
    e->is_unknown = true;
    e->joules = e->seconds = 0;
    *e->source = 0;
    append(e->missing, sizeof e->missing, device, *why ? why : "its energy counter has stopped");
}

static void add_clock(crumb_engine_energy *e, const crumb_device_sensors *s) {
    e->knows_throttling = s->knows_throttling;
    if (*s->throttling) snprintf(e->throttling, sizeof e->throttling, "%s", s->throttling);
    if (!s->clock_mhz) return;
    e->clock_sum += s->clock_mhz;
    e->clock_mhz = e->clock_sum / ++e->n_clocks;
}

void crumb_engine_energy_add(const crumb_model *m, crumb_engine_energy *e) {
    for (size_t i = 0; i < m->n_units; i++) {
        crumb_device_sensors now;
        uint64_t gained;
        sense(&m->units[i], &now);
        if (i == 0) add_clock(e, &now);
        if (!e->is_unknown && !crumb_energy_between(&e->last[i], &now, &gained))
            give_up(e, m->units[i].info.name, now.missing);
        if (!e->is_unknown) e->joules += (double)gained * 1e-6;
        e->last[i] = now;
    }
    if (!e->is_unknown) e->seconds = (double)(crumb_now_ns() - e->start_ns) * 1e-9;
}
