#include "host/kernel/tuning.h"

#include "host/base/cache.h"
#include "host/base/file.h"
#include "host/base/memory.h"

#include <math.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SCHEMA_VERSION = 1, BUSY_MS = 10000, FEW_ROWS = 16, OTHER_GROUP = 8, MEMORY = 32 };

/* A model's layers are alike: what was found last is asked for again. */
typedef struct remembered {
    crumb_tuning_key key;
    crumb_tuning_record record;
    bool found;
} remembered;

struct crumb_tuning {
    sqlite3 *db; /* NULL: there is no file, and nothing is written */
    char path[512];
    remembered memory[MEMORY];
    size_t n_remembered; /* in all; the oldest are overwritten */
};

static crumb_status fail(const crumb_tuning *t, const char *what, crumb_error *err) {
    return crumb_fail(err, CRUMB_ERR_IO, "%s: %s: %s", t->path, what, t->db ? sqlite3_errmsg(t->db) : "no database");
}

bool crumb_tuning_path(char *out, size_t size) {
    const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    int n = -1;
    if (data && *data == '/')
        n = snprintf(out, size, "%s/crumb/tuning.sqlite", data);
    else if (home && *home == '/')
        n = snprintf(out, size, "%s/.local/share/crumb/tuning.sqlite", home);
    return n > 0 && (size_t)n < size;
}

/* ---- opening ----------------------------------------------------------------------------------------------- */

#define SET_VERSION "PRAGMA user_version = 1;"
static const char set_version[] = SET_VERSION;
static const char schema[] =
    "CREATE TABLE measurement(device TEXT NOT NULL, target TEXT NOT NULL, source TEXT NOT NULL, weights TEXT NOT NULL,"
    " m INTEGER NOT NULL, k INTEGER NOT NULL, n INTEGER NOT NULL, grp INTEGER NOT NULL, act INTEGER NOT NULL,"
    " threads INTEGER NOT NULL, kernel TEXT NOT NULL, knobs TEXT NOT NULL, ratio REAL NOT NULL, ns REAL NOT NULL,"
    " rounds INTEGER NOT NULL,"
    " PRIMARY KEY(device, target, source, weights, m, k, n, grp, act, threads, kernel, knobs)) WITHOUT "
    "ROWID;" SET_VERSION;

/* SQLITE_OK with the schema's version, or what SQLite says is wrong with the file. */
static int read_version(sqlite3 *db, int *version) {
    sqlite3_stmt *s = NULL;
    int code = sqlite3_prepare_v2(db, "PRAGMA user_version", -1, &s, NULL);
    if (code == SQLITE_OK) code = sqlite3_step(s);
    *version = code == SQLITE_ROW ? sqlite3_column_int(s, 0) : 0;
    sqlite3_finalize(s);
    if (code != SQLITE_ROW) return code == SQLITE_DONE ? SQLITE_CORRUPT : code;
    code = sqlite3_prepare_v2(db, "PRAGMA quick_check(1)", -1, &s, NULL);
    if (code == SQLITE_OK) code = sqlite3_step(s);
    const char *verdict = code == SQLITE_ROW ? (const char *)sqlite3_column_text(s, 0) : NULL;
    code = verdict && strcmp(verdict, "ok") == 0 ? SQLITE_OK : code == SQLITE_ROW ? SQLITE_CORRUPT : code;
    sqlite3_finalize(s);
    return code;
}

/* Whether a file without a version has the schema's table: so does what `sqlite3 FILE .dump` makes of a damaged one.
 */
static bool has_table(sqlite3 *db) {
    static const char query[] =
        "SELECT group_concat(name || pk) = 'device1,target2,source3,weights4,m5,k6,n7,grp8,act9,"
        "threads10,kernel11,knobs12,ratio0,ns0,rounds0' FROM pragma_table_info('measurement')";
    sqlite3_stmt *s = NULL;
    int code = sqlite3_prepare_v2(db, query, -1, &s, NULL);
    if (code == SQLITE_OK) code = sqlite3_step(s);
    const bool has = code == SQLITE_ROW && sqlite3_column_int(s, 0);
    sqlite3_finalize(s);
    return has;
}

/* Two programs may both find an empty file: the second one sees the first one's table. After a failure the caller
 * closes the file, which undoes what was begun; until then SQLite knows the reason. */
static int create_schema(sqlite3 *db) {
    int version = 0, code = sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
    if (code == SQLITE_OK) code = read_version(db, &version);
    const char *sql = has_table(db) ? set_version : schema;
    if (code == SQLITE_OK && version == 0) code = sqlite3_exec(db, sql, NULL, NULL, NULL);
    return code == SQLITE_OK ? sqlite3_exec(db, "COMMIT", NULL, NULL, NULL) : code;
}

static int open_file(const char *path, bool create, sqlite3 **db, int *version) {
    int flags = create ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READWRITE;
    int code = sqlite3_open_v2(path, db, flags, NULL);
    if (code != SQLITE_OK) return code;
    sqlite3_busy_timeout(*db, BUSY_MS);
    code = read_version(*db, version);
    if (code != SQLITE_OK || *version != 0) return code;
    if (create) code = create_schema(*db);
    if (create || has_table(*db)) *version = SCHEMA_VERSION;
    return code;
}

static bool is_damage(int code) {
    return (code & 0xff) == SQLITE_NOTADB || (code & 0xff) == SQLITE_CORRUPT;
}

/* The damaged file gets a name of its own, so that what is in it is not lost. */
static crumb_status put_aside(crumb_tuning *t, char note[256], crumb_error *err) {
    char aside[sizeof t->path + 32];
    for (int i = 1; i < 1000; i++) {
        snprintf(aside, sizeof aside, "%s.damaged-%d", t->path, i);
        if (crumb_file_exists(aside)) continue;
        if (rename(t->path, aside) != 0) break;
        snprintf(note, 256,
                 "the tuning database was damaged; it is now %.115s, whose rows can be got back: sqlite3 THAT .dump | "
                 "sed 's/^ROLLBACK.*/COMMIT;/' | sqlite3 NEW",
                 aside);
        return CRUMB_OK;
    }
    return crumb_fail(err, CRUMB_ERR_IO, "%s is damaged, and cannot be renamed: remove it", t->path);
}

static crumb_status open_held(crumb_tuning *t, bool create, char note[256], crumb_error *err) {
    int version = 0, code = open_file(t->path, create, &t->db, &version);
    if (is_damage(code)) {
        sqlite3_close(t->db);
        t->db = NULL;
        CRUMB_TRY(put_aside(t, note, err));
        if (!create) return CRUMB_OK;
        code = open_file(t->path, create, &t->db, &version);
    }
    if (code != SQLITE_OK)
        return fail(t, "cannot be used as the tuning database; give another file with --tuning", err);
    if (version > SCHEMA_VERSION)
        return crumb_fail(err, CRUMB_ERR_FORMAT, "%s is of a newer crumb: version %d, and this one knows %d", t->path,
                          version, SCHEMA_VERSION);
    if (version == 0) { /* empty, and not ours to fill */
        sqlite3_close(t->db);
        t->db = NULL;
    }
    return CRUMB_OK;
}

/* Programs open it one after the other: a second one that finds the same damage would put the first one's new file
 * aside, and one that has the damaged file open takes the new one's journal, which is found by its name, for its own.
 */
static crumb_status open_database(crumb_tuning *t, bool create, char note[256], crumb_error *err) {
    const int hold = crumb_file_hold_folder_of(t->path);
    const crumb_status status = open_held(t, create, note, err);
    crumb_file_let_go(hold);
    return status;
}

crumb_status crumb_tuning_open(const char *path, bool create, crumb_tuning **out, char note[256], crumb_error *err) {
    void *memory;
    *out = NULL;
    *note = 0;
    CRUMB_TRY(crumb_calloc(1, sizeof **out, "the tuning database", &memory, err));
    crumb_tuning *t = memory;
    int n = snprintf(t->path, sizeof t->path, "%s", path);
    crumb_status status = CRUMB_OK;
    if (n < 0 || (size_t)n >= sizeof t->path)
        status = crumb_fail(err, CRUMB_ERR_ARGUMENT, "the tuning database's name is too long");
    else if (create)
        status = crumb_file_make_folder_of(path, err);
    if (status == CRUMB_OK && (create || crumb_file_exists(path))) status = open_database(t, create, note, err);
    if (status == CRUMB_OK)
        *out = t;
    else
        crumb_tuning_close(t);
    return status;
}

void crumb_tuning_close(crumb_tuning *t) {
    if (!t) return;
    sqlite3_close(t->db);
    free(t);
}

/* ---- reading and writing ----------------------------------------------------------------------------------- */

static void bind_key(sqlite3_stmt *s, const crumb_tuning_key *key) {
    const char *const texts[] = {key->device, key->target, key->source, key->weights};
    const uint32_t numbers[] = {key->m, key->k, key->n, key->group, key->act, key->n_threads};
    for (int i = 0; i < 4; i++) sqlite3_bind_text(s, 1 + i, texts[i], -1, SQLITE_STATIC);
    for (int i = 0; i < 6; i++) sqlite3_bind_int64(s, 5 + i, numbers[i]);
}

/* For crumb_tuning_is_trusted, in SQL. */
static void bind_trust(sqlite3_stmt *s, int first) {
    sqlite3_bind_int(s, first, CRUMB_TUNING_CONFIRMED);
    sqlite3_bind_int(s, first + 1, CRUMB_TUNING_ROUNDS);
}

crumb_status crumb_tuning_put(crumb_tuning *t, const crumb_tuning_record *r, crumb_error *err) {
    sqlite3_stmt *s = NULL;
    if (!t->db) return fail(t, "cannot be written", err);
    t->n_remembered = 0;
    static const char query[] =
        "INSERT INTO measurement VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
        " ON CONFLICT(device, target, source, weights, m, k, n, grp, act, threads, kernel, knobs) DO UPDATE"
        " SET ratio=excluded.ratio, ns=excluded.ns, rounds=excluded.rounds WHERE excluded.rounds>0 OR rounds=0";
    int code = sqlite3_prepare_v2(t->db, query, -1, &s, NULL);
    if (code == SQLITE_OK) {
        bind_key(s, &r->key);
        sqlite3_bind_text(s, 11, r->kernel, -1, SQLITE_STATIC);
        sqlite3_bind_text(s, 12, r->knobs, -1, SQLITE_STATIC);
        sqlite3_bind_double(s, 13, r->ratio);
        sqlite3_bind_double(s, 14, r->ns);
        sqlite3_bind_int64(s, 15, r->rounds);
        code = sqlite3_step(s);
    }
    sqlite3_finalize(s);
    return code == SQLITE_DONE ? CRUMB_OK : fail(t, "cannot be written", err);
}

crumb_status crumb_tuning_begin(crumb_tuning *t, crumb_error *err) {
    if (t->db && sqlite3_exec(t->db, "BEGIN IMMEDIATE", NULL, NULL, NULL) == SQLITE_OK) return CRUMB_OK;
    return fail(t, "cannot be written", err);
}

crumb_status crumb_tuning_end(crumb_tuning *t, crumb_status status, crumb_error *err) {
    if (status == CRUMB_OK && sqlite3_exec(t->db, "COMMIT", NULL, NULL, NULL) != SQLITE_OK)
        status = fail(t, "cannot be written", err);
    if (status == CRUMB_OK) return CRUMB_OK;
    t->n_remembered = 0;
    sqlite3_exec(t->db, "ROLLBACK", NULL, NULL, NULL); /* where SQLite has not done so by itself */
    return status;
}

static void take_text(sqlite3_stmt *s, int column, char *out, size_t size) {
    const unsigned char *text = sqlite3_column_text(s, column);
    snprintf(out, size, "%s", text ? (const char *)text : "");
}

static uint32_t take_number(sqlite3_stmt *s, int column) {
    int64_t value = sqlite3_column_int64(s, column);
    return value < 0 || value > UINT32_MAX ? 0 : (uint32_t)value;
}

static void take_record(sqlite3_stmt *s, crumb_tuning_record *r) {
    *r = (crumb_tuning_record){0};
    take_text(s, 0, r->key.device, sizeof r->key.device);
    take_text(s, 1, r->key.target, sizeof r->key.target);
    take_text(s, 2, r->key.source, sizeof r->key.source);
    take_text(s, 3, r->key.weights, sizeof r->key.weights);
    r->key.m = take_number(s, 4);
    r->key.k = take_number(s, 5);
    r->key.n = take_number(s, 6);
    r->key.group = take_number(s, 7);
    r->key.act = take_number(s, 8);
    r->key.n_threads = take_number(s, 9);
    take_text(s, 10, r->kernel, sizeof r->kernel);
    take_text(s, 11, r->knobs, sizeof r->knobs);
    r->ratio = sqlite3_column_double(s, 12);
    r->ns = sqlite3_column_double(s, 13);
    r->rounds = take_number(s, 14);
}

crumb_status crumb_tuning_each(crumb_tuning *t, const crumb_tuning_key *like, crumb_tuning_fn *fn, void *user,
                               crumb_error *err) {
    static const char query[] =
        "SELECT * FROM measurement WHERE (?1='' OR device=?1) AND (?2='' OR target=?2) AND (?3='' OR source=?3)"
        " AND (?4='' OR weights=?4) AND (?5=0 OR m=?5) AND (?6=0 OR k=?6) AND (?7=0 OR n=?7) AND (?8=0 OR grp=?8)"
        " AND (?9=4294967295 OR act=?9) AND (?10=0 OR threads=?10)"
        " ORDER BY device, target, source, weights, m, k, n, grp, act, threads,"
        " rounds < CASE WHEN ratio < 1 THEN ?11 ELSE ?12 END, ratio, kernel, knobs";
    sqlite3_stmt *s = NULL;
    if (!t->db) return CRUMB_OK;
    int code = sqlite3_prepare_v2(t->db, query, -1, &s, NULL);
    if (code == SQLITE_OK) {
        bind_key(s, like);
        bind_trust(s, 11);
        crumb_tuning_record record;
        while ((code = sqlite3_step(s)) == SQLITE_ROW) {
            take_record(s, &record);
            if (fn(user, &record)) continue;
            code = SQLITE_DONE;
            break;
        }
    }
    sqlite3_finalize(s);
    return code == SQLITE_DONE ? CRUMB_OK : fail(t, "cannot be read", err);
}

typedef struct digest {
    const char *but_device;
    crumb_tuning_key last;
    uint64_t hash;
} digest;

static uint64_t hash_text(uint64_t hash, const char *text) {
    return crumb_hash(hash, text, strlen(text) + 1);
}

static bool add_best(void *user, const crumb_tuning_record *r) {
    digest *d = user;
    const bool best = memcmp(&d->last, &r->key, sizeof r->key) != 0;
    d->last = r->key;
    if (!best || !crumb_tuning_is_trusted(r) || strcmp(r->key.device, d->but_device) == 0) return true;
    const uint32_t numbers[] = {r->key.m, r->key.k, r->key.n, r->key.group, r->key.act, r->key.n_threads};
    const char *const texts[] = {r->key.device, r->key.target, r->key.source, r->key.weights, r->kernel, r->knobs};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) d->hash = hash_text(d->hash, texts[i]);
    d->hash = crumb_hash(d->hash, numbers, sizeof numbers);
    return true;
}

uint64_t crumb_tuning_digest(crumb_tuning *t, const char *but_device) {
    const crumb_tuning_key any = {.act = UINT32_MAX};
    digest d = {.but_device = but_device, .hash = CRUMB_HASH_SEED};
    if (crumb_tuning_each(t, &any, add_best, &d, NULL) != CRUMB_OK || d.hash == CRUMB_HASH_SEED) return 0;
    return d.hash;
}

/* ---- what is believed -------------------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double crumb_tuning_confirmed(double ratios[CRUMB_TUNING_CONFIRMED]) {
    enum { MIDDLE = CRUMB_TUNING_CONFIRMED / 2, HIGH = 17 }; /* of 25 the 18th is below the median in 2 cases of 100 */
    qsort(ratios, CRUMB_TUNING_CONFIRMED, sizeof *ratios, by_size);
    return ratios[MIDDLE] < 1 && ratios[HIGH] >= 1 ? ratios[HIGH] : ratios[MIDDLE];
}

/* ---- looking up -------------------------------------------------------------------------------------------- */

typedef struct search {
    const crumb_tuning_key *key;
    crumb_tuning_record *best;
    double distance, ratio;
} search;

static double distance_of(const crumb_tuning_key *a, const crumb_tuning_key *b) {
    if ((a->n <= FEW_ROWS) != (b->n <= FEW_ROWS)) return INFINITY;
    double distance = fabs(log2((double)a->m / b->m)) + fabs(log2((double)a->k / b->k));
    /* One scale per row is a group of K, so that groups differ with K even where they mean the same. */
    bool same_group = a->group == b->group || (a->group == a->k && b->group == b->k);
    return distance + fabs(log2((double)a->n / b->n)) + (same_group ? 0 : OTHER_GROUP);
}

static bool same_key(const crumb_tuning_key *a, const crumb_tuning_key *b) {
    return a->m == b->m && a->k == b->k && a->n == b->n && a->group == b->group && a->act == b->act &&
           a->n_threads == b->n_threads && strcmp(a->weights, b->weights) == 0 && strcmp(a->device, b->device) == 0 &&
           strcmp(a->target, b->target) == 0 && strcmp(a->source, b->source) == 0;
}

static bool keep_nearest(void *user, const crumb_tuning_record *record) {
    search *s = user;
    if (!record->key.m || !record->key.k || !record->key.n || !(record->ratio > 0)) return true; /* not ours */
    if (!crumb_tuning_is_trusted(record)) return true;
    double distance = distance_of(s->key, &record->key);
    if (distance > s->distance || (distance == s->distance && record->ratio >= s->ratio)) return true;
    if (isinf(distance)) return true;
    s->distance = distance;
    s->ratio = record->ratio;
    *s->best = *record;
    return true;
}

crumb_status crumb_tuning_find(crumb_tuning *t, const crumb_tuning_key *key, crumb_tuning_record *out, bool *found,
                               crumb_error *err) {
    *found = false;
    if (!t->db) return CRUMB_OK;
    for (size_t i = 0; i < t->n_remembered && i < MEMORY; i++) {
        const remembered *r = &t->memory[i];
        if (!same_key(&r->key, key)) continue;
        *out = r->record;
        *found = r->found;
        return CRUMB_OK;
    }
    remembered *r = &t->memory[t->n_remembered % MEMORY];
    search s = {.key = key, .best = &r->record, .distance = INFINITY, .ratio = INFINITY};
    crumb_tuning_key like = *key;
    like.m = like.k = like.n = like.group = 0;
    CRUMB_TRY(crumb_tuning_each(t, &like, keep_nearest, &s, err));
    r->key = *key;
    r->found = *found = !isinf(s.distance);
    t->n_remembered++;
    if (*found) *out = r->record;
    return CRUMB_OK;
}

crumb_status crumb_tuning_prune(crumb_tuning *t, const char *device, const char *source, uint64_t *n_removed,
                                crumb_error *err) {
    static const char query[] =
        "DELETE FROM measurement AS a WHERE (device=?1 AND source<>?2) OR EXISTS(SELECT 1 FROM measurement AS b WHERE"
        " a.device=b.device AND a.target=b.target AND a.source=b.source AND a.weights=b.weights AND a.m=b.m AND a.k=b.k"
        " AND a.n=b.n AND a.grp=b.grp AND a.act=b.act AND a.threads=b.threads AND"
        " (b.rounds < CASE WHEN b.ratio < 1 THEN ?3 ELSE ?4 END, b.ratio, b.kernel, b.knobs) <"
        " (a.rounds < CASE WHEN a.ratio < 1 THEN ?3 ELSE ?4 END, a.ratio, a.kernel, a.knobs))";
    sqlite3_stmt *s = NULL;
    *n_removed = 0;
    if (!t->db) return CRUMB_OK;
    int code = sqlite3_prepare_v2(t->db, query, -1, &s, NULL);
    if (code == SQLITE_OK) {
        sqlite3_bind_text(s, 1, device, -1, SQLITE_STATIC);
        sqlite3_bind_text(s, 2, source, -1, SQLITE_STATIC);
        bind_trust(s, 3);
        code = sqlite3_step(s);
        *n_removed = (uint64_t)sqlite3_changes(t->db);
    }
    sqlite3_finalize(s);
    return code == SQLITE_DONE ? CRUMB_OK : fail(t, "cannot be written", err);
}
